//! The host of an agent program, as the command `endstop guard` is one: wires, starts and supervises
//! it. Also for trials with real clients: `agent --guard URL PROGRAM ARGUMENT…`.

use endstop_guard::clients::{DiskFiles, Request, wire};
use endstop_guard::process::{GRACE, PrivateFolder, Signals, launch, supervise};
use std::ffi::OsString;
use std::process::ExitCode;

/// First argument of this program if it is a host.
pub(crate) const HOST: &str = "--guard";

pub(crate) fn host() -> ExitCode {
    endstop_process::keeper::adopt_orphans();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let proxy = std::env::args().nth(2).unwrap();
        let command: Vec<OsString> = std::env::args_os().skip(3).collect();
        let private = PrivateFolder::create().unwrap();
        let wiring = wire(&Request {
            command: &command,
            environment: &std::env::vars().collect(),
            folder: &std::env::current_dir().unwrap(),
            proxy: &proxy,
            private: private.path(),
            is_strict: false,
            files: &DiskFiles,
        });
        for warning in &wiring.warnings {
            eprintln!("guard: warning: {warning}");
        }
        if std::env::var_os("ENDSTOP_TEST_SHOW").is_some() {
            for (format, base, source) in &wiring.upstreams {
                eprintln!("guard: upstream {format} = {base} ({source})");
            }
        }
        let mut signals = Signals::listen().unwrap();
        let run = format!("guard-test-{}", std::process::id());
        let mut agent = launch(&wiring, &private, &run).unwrap();
        let never = std::future::pending();
        let noted = |_| eprintln!("guard: noted");
        let ended = match supervise(&mut agent, &mut signals, never, GRACE, noted).await {
            Ok(ended) => ended,
            Err(error) => {
                eprintln!("guard: {error}");
                return ExitCode::from(127);
            }
        };
        eprintln!(
            "guard: {}; interrupted {}; stopped {} {:?}; left {}",
            ended.end.how(),
            ended.interrupted.is_some(),
            ended.stopped,
            ended.end.stopped_by,
            ended.end.survivors.len()
        );
        ExitCode::from(ended.exit_code())
    })
}
