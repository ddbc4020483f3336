//! Which of the family of controllers sets the rate, and with which parameters.

use longhaul_rate_control::{Parameter, Profile, Unit, Unplayable};

use super::Scenario;
use crate::draw::Draw;

/// In half of the worlds that find their rate another profile does, and in a third of those at a fixed
/// one; some parameters of it are other than usual in a third of these.
pub(super) fn draw(scenario: &mut Scenario) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    scenario.profile = match scenario.profile {
        "auto" if draw.one_in(2) => {
            let first = draw.pick::<&str>(FINDING);
            if Draw::new(scenario.seed, LATER_STREAM).one_in(10) { "lambdastream" } else { first }
        }
        "fixed" if draw.one_in(3) => draw.pick::<&str>(&["tsunami", "paptc"]),
        _ => return,
    };
    let known = Profile::by_name(scenario.profile).map(|profile| profile.controller.parameters());
    let known = known.expect("profiles are drawn by their names");
    if known.is_empty() || !draw.one_in(3) {
        return;
    }
    for _ in 0..draw.between(1, 3) {
        let parameter = draw.pick(known);
        let figure = parameter.unit.exact(figure(draw, parameter));
        scenario.parameters.push(format!("{}={figure}", parameter.name));
        // The same again, or one that does not go with another, is refused.
        let parameters = scenario.parameters.iter().map(String::as_str);
        let wished = Profile::wished(Some(scenario.profile), scenario.rate, parameters);
        if matches!(wished, Err(Unplayable::Parameter(_))) {
            scenario.parameters.pop();
        }
    }
}

/// Not so far from the usual that a world need not end.
fn figure(draw: &mut Draw, parameter: &Parameter) -> u64 {
    let Parameter { default, least, most, .. } = *parameter;
    if let Unit::Choice(_) = parameter.unit {
        return draw.between(least, most);
    }
    draw.scaled((default / 4).max(1), default.saturating_mul(4).max(1)).clamp(least, most)
}

/// Those that need no rate, beside `auto` and `lambdastream`.
const FINDING: &[&str] =
    &["cubic", "bbr", "pcc", "scavenger", "fobs", "fobs-linear", "fobs-state", "sabul", "udt"];
/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 72;
/// That of a profile that came later, likewise.
const LATER_STREAM: u64 = 74;
