//! Sends notifications on a separate thread. Their results come back through the inbox.

use super::HostShell;
use crate::net::notify::{Means, Notifier};
use crate::process::orphans;
use dogwatch_core::Run;
use dogwatch_core::record::notification::Delivery;
use std::io;

impl HostShell<'_> {
    pub(super) fn send_notification(&mut self, run: &Run, delivery: Delivery) -> Result<(), String> {
        match self.notifier(run) {
            Ok(notifier) if notifier.send(delivery) => Ok(()),
            Ok(_) => Err("too many notifications are waiting".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn notifier(&mut self, run: &Run) -> io::Result<&Notifier> {
        if self.notifier.is_none() {
            let marks = [
                (orphans::NONCE_VAR, self.paths.nonce.as_str()),
                ("DOGWATCH_RUN", self.paths.run_id.as_str()),
            ];
            let means = Means {
                policy: run.plan().nodes[0].settings.notify.clone(),
                work_dir: self.paths.work_dir.clone(),
                env: marks.map(|(name, value)| (name.into(), Some(value.into()))).into(),
            };
            self.notifier = Some(Notifier::start(means, self.inbox.clone())?);
        }
        Ok(self.notifier.as_ref().expect("just created"))
    }
}
