//! Options of HELLO, by the client, and of WELCOME, by the server.

use crate::options::kinds;

kinds! {
    1 true VERSION Both "version option"
    2 true KEY_ID Client "key id option"
    3 true PROOF Both "proof option"
    4 true PROTECT Both "protect option"
    5 true CIPHER Both "cipher option"
    6 true CARRIER Both "carrier option"
    7 true LANES Both "lanes option"
    8 true CONNECTION_ID Server "connection id option"
    9 true UDP_PORT Server "UDP port option"
    10 false IMPLEMENTATION Both "implementation option"
    11 false RECEIVE_LIMITS Both "receive limits option"
    12 true PROFILE Client "profile option"
    13 true RATE Client "rate option"
    14 true PARAMETERS Client "parameters option"
}
