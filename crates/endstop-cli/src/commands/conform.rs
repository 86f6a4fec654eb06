//! `endstop conform`: judges how the runs of any agent program end.

use crate::conform_args::{
    ConformArgs, ConformCommand, DiffArgs, PagesArgs, ProviderArgs, ShowArgs,
};
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::run::agent::runtime;
use crate::run::signals::{Signals, StopSignal};
use endstop_conform::case::{self, Case};
use endstop_conform::checks::{self, CHECKS};
use endstop_conform::profile;
use endstop_conform::program::{Launch, absolute, is_own};
use endstop_conform::provider::{self, Provider, Script};
use endstop_conform::report::{self, Baseline};
use endstop_conform::suite::{self, Selection, SuiteResult};
use endstop_conform::{Capability, Tool};
use serde_json::json;
use std::io::IsTerminal as _;
use std::path::Path;

pub(crate) fn run(args: &ConformArgs, as_json: bool) -> Result {
    match &args.command {
        None => judge(args, as_json),
        Some(ConformCommand::List) => Ok(list(as_json)),
        Some(ConformCommand::Show(args)) => show(args, as_json),
        Some(ConformCommand::Provider(args)) => provider(args, as_json),
        Some(ConformCommand::Pages(args)) => pages(args),
        Some(ConformCommand::Diff(args)) => diff(args, as_json),
    }
}

/// A form of a report, by the end of its file's name.
type Write = fn(&SuiteResult) -> String;

fn judge(args: &ConformArgs, as_json: bool) -> Result {
    if args.program.is_empty() {
        let example =
            "give the program after `--`, for example `endstop conform --level 2 -- claude`";
        return Err(Failure::usage(format!("no program: {example}")));
    }
    check_passed(&args.pass)?;
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    let reports = args.report.iter().map(|path| {
        let file = NewFile::of("--report", path, args.overwrite)?;
        Ok((file, form(path)?))
    });
    let reports: Vec<(NewFile, Write)> = reports.collect::<Result<_>>()?;
    let badge = args.badge.as_deref();
    let badge = badge.map(|path| NewFile::of("--badge", path, args.overwrite)).transpose()?;
    let selection = Selection { level: args.level, only: args.only.clone() };
    selection.chosen().map_err(Failure::usage)?;

    let named = args.profile.as_deref();
    let profile = named.map_or_else(|| profile::of_command(&args.program), profile::find);
    let profile =
        profile.and_then(|profile| if args.guarded { profile.guarded() } else { Ok(profile) });
    let profile = profile.map_err(|error| Failure::usage(error.to_string()))?;
    let guard = args.guarded.then(std::env::current_exe).transpose();
    let guard = guard
        .map_err(|error| Failure::fault(format!("the path of endstop is not known: {error}")))?;
    let folder = std::env::current_dir()
        .map_err(|error| Failure::usage(format!("the working folder cannot be read: {error}")))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let command = absolute(&args.program, &folder, &path).map_err(Failure::usage)?;
    let launch = Launch {
        command: &command,
        profile: &profile,
        guard: guard.map(std::path::PathBuf::into_os_string),
        patience: args.patience,
        pass: &args.pass,
        in_place: args.in_place,
        seed: args.seed,
    };
    let jobs = args.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        usize::from,
    );
    let shows_progress = std::io::stderr().is_terminal();
    let seen = |name: &str, number: usize, all: usize| {
        if shows_progress {
            output::note(&format!("{number}/{all} {name}"));
        }
    };
    let result = runtime()?.block_on(async {
        tokio::select! {
            // The runs are dropped, which ends their programs and removes their folders.
            status = stopped() => Err(status),
            result = suite::run(&launch, &selection, jobs, &seen) => Ok(result),
        }
    });
    let result = match result {
        Err(status) => return status,
        Ok(result) => result.map_err(|error| Failure::fault(format!("conform: {error}")))?,
    };
    if as_json {
        output::json(&result);
    } else {
        for line in report::text(&result) {
            output::line(&line);
        }
    }
    // A program may have changed the place of one of them; the others are written.
    let mut written: Vec<Result<()>> =
        reports.iter().map(|(file, write)| file.write(&write(&result))).collect();
    written.extend(badge.map(|file| file.write(&format!("{}\n", report::badge(&result)))));
    written.into_iter().collect::<Result<Vec<()>>>()?;
    let Some(baseline) = baseline else { return Ok(u8::from(!result.reaches(&selection))) };
    let stale = baseline.stale(&result);
    for id in &stale.new {
        output::note(&format!("endstop: {id} does not pass, and the baseline does not list it"));
    }
    for id in &stale.passing {
        output::note(&format!("endstop: {id} passes; remove it from the baseline"));
    }
    if !result.works() {
        output::note("endstop: the plain case was not a success, whatever the baseline lists");
    }
    Ok(u8::from(!stale.is_empty() || !result.works()))
}

/// Checks the variables that the program gets in addition.
fn check_passed(names: &[String]) -> Result<()> {
    for name in names {
        if is_own(name) {
            let why = "the suite sets this variable itself, so that no key or folder of its user reaches the program";
            return Err(Failure::usage(format!("invalid --pass {name}: {why}")));
        }
        if std::env::var_os(name).is_none() {
            let why = "it is not set; export it, or leave the option out";
            return Err(Failure::usage(format!("invalid --pass {name}: {why}")));
        }
    }
    Ok(())
}

/// Returns the exit status of the signal that ends this command, when it comes.
async fn stopped() -> Result {
    Ok(match Signals::listen()?.next().await {
        StopSignal::Nothing | StopSignal::Interrupt => 130,
        StopSignal::Terminate => 143,
    })
}

fn form(path: &Path) -> Result<Write> {
    match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("json") => Ok(|result| serde_json::to_string(result).unwrap_or_default()),
        Some("xml") => Ok(report::junit),
        Some("md") => Ok(report::markdown),
        Some("html") => Ok(report::page),
        _ => Err(Failure::usage(format!(
            "invalid --report {}: expected a name that ends in .json, .xml, .md or .html",
            path.display()
        ))),
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

fn read_baseline(path: &Path) -> Result<Baseline> {
    Baseline::read(&path.display().to_string(), &read(path)?).map_err(Failure::usage)
}

fn list(as_json: bool) -> u8 {
    for check in CHECKS {
        let level = u8::from(check.level);
        if as_json {
            output::json(&json!({
                "id": check.id, "level": level, "must": check.must, "severity": check.severity,
                "sentences": check.sentences, "text": check.text,
            }));
        } else {
            output::line(&format!(
                "{:<5} {level} {:<6} {}",
                check.id,
                check.strength(),
                check.text
            ));
        }
    }
    if !as_json {
        let capabilities = Capability::ALL.map(Capability::name).join(", ");
        let tools = Tool::ALL.map(|tool| {
            let names = provider::tool_names(tool);
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("known names of tools, {}: {names}", tool.name())
        });
        output::line(&format!("profiles: {}", profile::names().collect::<Vec<_>>().join(", ")));
        output::line(&format!("capabilities of a profile: {capabilities}"));
        for line in &tools {
            output::line(line);
        }
    }
    0
}

/// Returns the cases of a check, or the case with this name.
fn cases(id: &str) -> Result<Vec<Case>> {
    if let Some(check) = checks::find(&id.to_uppercase()) {
        let all = case::all().map_err(|error| Failure::fault(error.to_string()))?;
        return Ok(all
            .into_iter()
            .filter(|case| case.checks.iter().any(|one| one == check.id))
            .collect());
    }
    case::find(id).map(|case| vec![case]).map_err(|error| Failure::usage(error.to_string()))
}

fn show(args: &ShowArgs, as_json: bool) -> Result {
    let cases = cases(&args.id)?;
    let check = checks::find(&args.id.to_uppercase());
    if as_json {
        let check = check.map(|check| json!({"id": check.id, "level": check.level, "must": check.must, "text": check.text}));
        output::json(&json!({"check": check, "cases": cases}));
        return Ok(0);
    }
    if let Some(check) = check {
        let sentences: Vec<String> = check.sentences.iter().map(ToString::to_string).collect();
        let (level, name) = (u8::from(check.level), check.level.name());
        output::line(&format!(
            "{} ({}, level {level}, {name}): {}",
            check.id,
            check.strength(),
            check.text
        ));
        output::line(&format!("sentences {} of \"How a run ends\"", sentences.join(", ")));
        if check.every_case && cases.is_empty() {
            output::line("judged in every case, or in a protocol");
        }
    }
    for case in cases {
        output::line(&format!("\n# {}", case.name));
        case::text(&case.name).unwrap_or_default().lines().for_each(output::line);
    }
    Ok(0)
}

fn provider(args: &ProviderArgs, as_json: bool) -> Result {
    let case = cases(&args.case)?.into_iter().next().ok_or_else(|| {
        Failure::usage(format!("{} has no case of its own: it is judged in every case", args.case))
    })?;
    let name = case.name.clone();
    let mut script = Script::new(case);
    if let Some(folder) = &args.folder {
        script = script.in_folder(folder);
    }
    let provider = Provider::start(script)
        .map_err(|error| Failure::fault(format!("the provider could not be started: {error}")))?;
    let base = provider.base();
    if as_json {
        output::json(&json!({"type": "provider", "case": name, "base_url": base}));
    } else {
        output::line(&format!("serving {name} on {base} (OpenAI: {base}/v1); stop it with Ctrl-C"));
    }
    let status = runtime()?.block_on(async {
        tokio::select! {
            status = stopped() => status,
            never = unspoken(&provider) => match never {},
        }
    });
    output::note(&format!("{} calls", provider.count()));
    status
}

/// Says which calls did not get the answer of the case.
async fn unspoken(provider: &Provider) -> std::convert::Infallible {
    let mut seen = 0;
    loop {
        for (at, call) in provider.calls().iter().enumerate().skip(seen) {
            if let Some(unspoken) = &call.unspoken {
                let (number, why) = (at + 1, &unspoken.why);
                output::note(&format!(
                    "call {number} got a plain answer, and not that of the case: {why}"
                ));
            }
            seen = at + 1;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Fails if two results are of different editions, whose verdicts cannot be compared.
fn of_one_edition<'a>(results: impl Iterator<Item = (&'a Path, &'a SuiteResult)>) -> Result<()> {
    let mut first: Option<(&Path, &str)> = None;
    for (path, result) in results {
        let (known, edition) = *first.get_or_insert((path, &result.edition));
        if edition != result.edition {
            return Err(Failure::usage(format!(
                "{} is of edition {edition}, and {} of {}; compare results of one edition",
                known.display(),
                path.display(),
                result.edition
            )));
        }
    }
    Ok(())
}

fn read_result(path: &Path) -> Result<SuiteResult> {
    serde_json::from_str(&read(path)?).map_err(|error| {
        Failure::usage(format!(
            "{}: not a result of `endstop conform --json`: {error}",
            path.display()
        ))
    })
}

fn pages(args: &PagesArgs) -> Result {
    let results: Vec<SuiteResult> =
        args.results.iter().map(|path| read_result(path)).collect::<Result<_>>()?;
    of_one_edition(args.results.iter().map(AsRef::as_ref).zip(&results))?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| Failure::usage(format!("--out {}: {error}", args.out.display())))?;
    for page in report::pages(&results) {
        let file = args.out.join(&page.name);
        NewFile::of("--out", &file, args.overwrite)?.write(&page.text)?;
    }
    Ok(0)
}

fn diff(args: &DiffArgs, as_json: bool) -> Result {
    let (before, after) = (read_result(&args.before)?, read_result(&args.after)?);
    of_one_edition([(&*args.before, &before), (&*args.after, &after)].into_iter())?;
    let changes = report::compare(&before, &after);
    if as_json {
        output::json(
            &json!({"type": "conformance_diff", "before": before.level, "after": after.level, "changes": changes}),
        );
    } else {
        let name = |verdict: Option<checks::Verdict>| verdict.map_or("-", checks::Verdict::name);
        for change in &changes {
            let (old, new) = (name(change.before), name(change.after));
            output::line(&format!("{:<5} {old} → {new}: {}", change.id, change.why));
        }
        output::line(&format!(
            "{} → {}, {} changes",
            report::level(&before),
            report::level(&after),
            changes.len()
        ));
    }
    Ok(u8::from(changes.iter().any(report::Change::is_worse)))
}
