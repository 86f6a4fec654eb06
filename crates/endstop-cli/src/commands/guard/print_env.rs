//! `endstop guard --print-env`: lines for a shell that point its agents at a standing proxy.

use super::surroundings::environment;
use crate::args::GuardArgs;
use crate::failure::{Failure, Result};
use crate::output;
use endstop_guard::clients::{DiskFiles, Request, Shell, print_env, wire};
use endstop_guard::exchange::RunName;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The address that the lines name if there is no `--listen`.
const ADDRESS: &str = "127.0.0.1:4000";

/// Variables with the address of a provider.
const BASE_URLS: [&str; 3] = ["ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OPENAI_BASE_URL"];

pub(in crate::commands) fn run(args: &GuardArgs, shell: &str) -> Result {
    let shell = match shell {
        "" => std::env::var("SHELL").unwrap_or_else(|_| "sh".to_owned()),
        given => given.to_owned(),
    };
    let shell: Shell =
        shell.parse().map_err(|error| Failure::usage(format!("--print-env: {error}")))?;
    let address = if let Some(address) = &args.listen {
        callable(address)?
    } else {
        output::note(&format!(
            "endstop guard: no --listen, so the lines name {ADDRESS}; start the proxy with \
             `endstop guard --listen {ADDRESS}`"
        ));
        ADDRESS.to_owned()
    };
    let mut proxy = format!("http://{address}");
    if let Some(name) = &args.name {
        let name =
            RunName::new(name).map_err(|error| Failure::usage(format!("--name: {error}")))?;
        proxy = format!("{proxy}/run/{}", name.as_str());
    }
    let environment = environment();
    for name in BASE_URLS {
        let before = environment.get(name).filter(|before| !before.is_empty());
        if before.is_some_and(|before| !before.starts_with(&proxy)) {
            // The proxy is another process, which does not see this variable.
            output::note(&format!(
                "endstop guard: {name} is set already; name its address under [upstream] in the \
                 proxy's file"
            ));
        }
    }
    let wiring = wire(&Request {
        command: &[],
        environment: &environment,
        folder: Path::new("."),
        proxy: &proxy,
        private: Path::new("."),
        is_strict: false,
        files: &DiskFiles,
    });
    let lines = print_env(shell, &wiring.env, &wiring.cleared);
    // A shell executes the lines, so a part of a value must not be missing.
    output::unredacted_line(lines.trim_end());
    Ok(0)
}

/// Returns the address at which a client reaches a listener of this address.
fn callable(address: &str) -> Result<String> {
    let problem = "expected an address and a port, for example 127.0.0.1:4000";
    let parsed: SocketAddr = match address.parse() {
        Ok(parsed) => parsed,
        // A host name; its characters go into lines that a shell executes, though quoted.
        Err(_) if is_host_and_port(address) => return Ok(address.to_owned()),
        Err(_) => return Err(Failure::usage(format!("--listen: {problem}"))),
    };
    if parsed.port() == 0 {
        return Err(Failure::usage(format!("--listen: port 0 names no port; {problem}")));
    }
    // "All addresses" can be listened on, but not called.
    let ip = match parsed.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    Ok(SocketAddr::new(ip, parsed.port()).to_string())
}

fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
}
