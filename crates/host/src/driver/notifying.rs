//! Hands notifications to a thread of their own. Their results come back through the inbox.

use super::Driver;
use crate::net::notify::{Means, Notifier};
use crate::process::orphans;
use dogwatch_core::record::notification::Delivery;
use dogwatch_core::run::input::Input;
use std::io;

impl Driver<'_> {
    pub(super) fn notify(&mut self, delivery: Delivery) {
        let (key, how) = (delivery.notification.key.clone(), delivery.how);
        let error = match self.notifier() {
            Ok(notifier) if notifier.send(delivery) => return,
            Ok(_) => "too many notifications are waiting".to_owned(),
            Err(error) => error.to_string(),
        };
        self.todo.push_back(Input::Notified { key, how, error: Some(error) });
    }

    fn notifier(&mut self) -> io::Result<&Notifier> {
        if self.notifier.is_none() {
            let marks = [
                (orphans::NONCE_VAR, self.setup.nonce.as_str()),
                ("DOGWATCH_RUN", self.setup.run_id.as_str()),
            ];
            let means = Means {
                policy: self.run.plan().nodes[0].settings.notify.clone(),
                work_dir: self.setup.work_dir.clone(),
                env: marks.map(|(name, value)| (name.into(), Some(value.into()))).into(),
            };
            self.notifier = Some(Notifier::start(means, self.inbox.clone())?);
        }
        Ok(self.notifier.as_ref().expect("just created"))
    }
}
