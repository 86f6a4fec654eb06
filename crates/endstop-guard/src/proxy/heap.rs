//! Freed memory that a proxy keeps for its next burst of calls.

use std::hint::black_box;

/// Size of the block, half of what is kept, in bytes.
const BLOCK: usize = 4 << 20;

/// Lets this process keep up to 8 MB of freed memory. A program that serves a [`Proxy`](super::Proxy) calls
/// it once, before it listens.
///
/// The allocator of glibc returns free memory at the end of the heap to the system once there are
/// more than 128 kB of it. A proxy frees that much whenever a few requests are sent, and the next
/// ones then cost a page fault for each 4 kB. The release of a large block raises that limit to twice
/// its size (`M_MMAP_THRESHOLD` in mallopt(3)); no page of the block is touched. Other
/// allocators are not affected.
///
/// ```
/// endstop_guard::proxy::keep_freed_memory();
/// ```
pub fn keep_freed_memory() {
    // Otherwise the compiler may leave out both the allocation and the release.
    drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
}
