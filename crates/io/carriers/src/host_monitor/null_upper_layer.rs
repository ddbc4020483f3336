//! The layer above the lane of the monitor: it passes on the end of the connection and nothing else.

use std::sync::Arc;

use longhaul_connection::News;
use longhaul_wire::CloseCode;

use crate::buffer::Buffer;
use crate::upper_layer::UpperLayer;

/// Carries no data and no messages, and waits for no lock while the connection lives.
pub struct NullUpperLayer(pub Arc<dyn UpperLayer>);

impl UpperLayer for NullUpperLayer {
    fn on_news(&self, news: News<Buffer>) {
        // Silence on this lane means nothing: the peer need not have it.
        if matches!(&news, News::Closed(closed) if closed.code != CloseCode::TIMEOUT) {
            self.0.on_news(news);
        }
    }
}
