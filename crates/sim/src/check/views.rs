//! The live view, the replayed view and the view after a crash are the same.

use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::view::View;

pub(super) fn are_the_same_again(events: &[Recorded], live: &View) {
    assert_eq!(&View::fold(events), live, "the replayed view differs from the live one");
}
