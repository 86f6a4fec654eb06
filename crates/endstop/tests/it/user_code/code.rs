//! User code that misbehaves at its first call only.
//!
//! ```text
//! let code = Code::new(Does::Panic);
//! code.now();            // in a function: panics
//! code.later().await;    // in a future
//! ```

use endstop::{Agent, Lifecycle};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::Notify;

pub const WORDS: &str = "asked to panic";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    /// Vetoes or halts; its caller asks [`Code::vetoes`].
    Veto(Veto),
    Panic,
    /// A future that is never ready. Not possible in a function.
    Hang,
    /// A future that panics when it is released.
    PanicLater,
    /// Stops its own loop, and panics.
    CancelAndPanic,
    TerminateAndPanic,
    /// Blocks its thread until it is released.
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Veto {
    No,
    Halt,
}

#[derive(Clone)]
pub struct Code(Arc<Inner>);

struct Inner {
    does: Does,
    reached: AtomicUsize,
    under_way: AtomicUsize,
    agent: OnceLock<Agent>,
    go_on: Notify,
    release: Sender<()>,
    released: Mutex<Receiver<()>>,
}

/// Counts code that is running.
struct UnderWay(Arc<Inner>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Code {
    pub fn new(does: Does) -> Code {
        let (release, released) = channel();
        Code(Arc::new(Inner {
            does,
            reached: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            agent: OnceLock::new(),
            go_on: Notify::new(),
            release,
            released: Mutex::new(released),
        }))
    }

    /// Creates code that behaves well.
    pub fn idle() -> Code {
        let code = Code::new(Does::Hang);
        code.0.reached.fetch_add(1, Ordering::SeqCst);
        code
    }

    pub fn stands_in(&self, agent: &Agent) {
        assert!(self.0.agent.set(agent.clone()).is_ok());
    }

    pub fn was_reached(&self) -> bool {
        self.0.reached.load(Ordering::SeqCst) > 0
    }

    pub fn under_way(&self) -> usize {
        self.0.under_way.load(Ordering::SeqCst)
    }

    pub fn terminated(&self) -> bool {
        self.0.agent.get().is_some_and(|agent| agent.lifecycle() == Lifecycle::Terminated)
    }

    /// Releases the code that waits or blocks.
    pub fn go_on(&self) {
        self.0.go_on.notify_one();
        self.0.release.send(()).unwrap();
    }

    /// Executes the code in a function.
    pub fn now(&self) {
        drop(self.begin());
    }

    /// Executes the code in a future.
    pub fn later(&self) -> impl Future<Output = ()> + Send + use<> {
        let code = self.clone();
        async move {
            let Some(_under_way) = code.begin() else { return };
            match code.0.does {
                Does::Hang => std::future::pending().await,
                Does::PanicLater => {
                    code.0.go_on.notified().await;
                    panic!("{WORDS}");
                }
                _ => {}
            }
        }
    }

    /// `true` if the code vetoes this call.
    pub fn vetoes(&self) -> Option<Veto> {
        let first = self.0.reached.load(Ordering::SeqCst) == 1;
        match self.0.does {
            Does::Veto(veto) if first => Some(veto),
            _ => None,
        }
    }

    fn begin(&self) -> Option<UnderWay> {
        if self.0.reached.fetch_add(1, Ordering::SeqCst) > 0 {
            return None;
        }
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(Arc::clone(&self.0));
        match self.0.does {
            Does::Panic => panic!("{WORDS}"),
            Does::CancelAndPanic => {
                self.0.agent.get().unwrap().cancel();
                panic!("{WORDS}");
            }
            Does::TerminateAndPanic => {
                self.0.agent.get().unwrap().terminate();
                panic!("{WORDS}");
            }
            Does::Block => {
                let released = self.0.released.lock().unwrap();
                released
                    .recv_timeout(4 * crate::support::HANG)
                    .expect("the code was never released");
            }
            Does::Veto(_) | Does::Hang | Does::PanicLater => {}
        }
        Some(under_way)
    }
}
