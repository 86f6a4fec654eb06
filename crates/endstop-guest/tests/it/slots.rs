//! Values that calls borrow one at a time.

use endstop_guest::slot::Slot;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn nested_call_finds_slot_empty() {
    let slot = Slot::new(1);
    let mut outer = slot.take().unwrap();
    assert!(slot.take().is_none());
    *outer += 1;
    drop(outer);
    assert_eq!(*slot.take().unwrap(), 2);
}

#[test]
fn panic_puts_value_back() {
    let slot = Slot::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _taken = slot.take().unwrap();
        panic!("a policy failed");
    }));
    assert!(panicked.is_err());
    assert_eq!(slot.take().map(|value| *value), Some(1));
}
