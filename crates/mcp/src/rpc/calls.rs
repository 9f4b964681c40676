//! The open calls of one client, so that it can cancel them by their ids.

use super::message::{Id, Object};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// How many calls of one client run at once; further ones are refused.
pub const MAX_CALLS: usize = 256;

/// The open calls.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<BTreeMap<Id, CancellationToken>>>);

impl Calls {
    /// Registers a call. Returns `None` if too many are open, or the id is in use.
    pub fn register(&self, id: &Id) -> Option<CancellationToken> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CALLS || open.contains_key(id) {
            return None;
        }
        let canceled = CancellationToken::new();
        open.insert(id.clone(), canceled.clone());
        Some(canceled)
    }

    /// Removes a call. Returns whether its response may be sent: a canceled call gets none.
    pub fn close(&self, id: &Id) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id).is_some()
    }

    /// Cancels the call that a `notifications/cancelled` names. Returns its id.
    pub fn cancel(&self, params: &Object) -> Option<Id> {
        let id = Id::from_json(params.get("requestId")?)?;
        let canceled = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)?;
        canceled.cancel();
        Some(id)
    }

    /// Cancels all calls.
    pub fn cancel_all(&self) {
        let open = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for canceled in open.into_values() {
            canceled.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::object;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_canceled_call_gets_no_response() {
        let calls = Calls::default();
        let [first, second] = [Id::Number(1), Id::Text("1".into())];
        let (one, two) = (calls.register(&first).expect("open"), calls.register(&second).expect("open"));
        assert!(calls.register(&first).is_none(), "the id is in use");
        assert_eq!(calls.cancel(&object(json!({"requestId": "1"}))), Some(second.clone()));
        assert!(two.is_cancelled() && !one.is_cancelled());
        assert!(!calls.close(&second) && calls.close(&first));
        assert_eq!(calls.cancel(&object(json!({"requestId": 1}))), None, "it is over");
    }

    #[test]
    fn refuses_more_open_calls_than_the_limit() {
        let calls = Calls::default();
        let mut number = 0..;
        let mut open = || calls.register(&Id::Number(number.next().expect("endless")));
        for _ in 0..MAX_CALLS {
            assert!(open().is_some());
        }
        assert!(open().is_none());
        calls.cancel_all();
        assert!(open().is_some());
    }
}
