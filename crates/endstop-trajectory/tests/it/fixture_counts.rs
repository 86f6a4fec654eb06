//! Compares what is read from each fixture with the counts in `counts.tsv` of its folder. A new
//! format needs only its fixtures and this file to be tested.
//!
//! ```text
//! file    runs  turns  calls  results  failures  problems
//! a.json  1     3      2      2        0         0
//! ```

use crate::common::{counts, fixture, fixtures, read_with};
use endstop_trajectory::read::{Options, formats};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const HEADER: &str = "file\truns\tturns\tcalls\tresults\tfailures\tproblems";

fn row(path: &Path) -> String {
    let (runs, problems) = read_with(path, &Options::default());
    let mut sums = [0; 5];
    for run in &runs {
        for (sum, count) in sums.iter_mut().zip(counts(run)) {
            *sum += count;
        }
    }
    let [_, turns, calls, results, failures] = sums;
    let (runs, problems) = (runs.len(), problems.len());
    format!("{runs}\t{turns}\t{calls}\t{results}\t{failures}\t{problems}")
}

#[test]
fn fixtures_match_their_counts() {
    let mut checked = 0;
    for folder in fs::read_dir(fixture("")).unwrap() {
        let folder = folder.unwrap().path();
        // The runs of the reference are counted by the test of backtests.
        if !folder.is_dir() || folder.ends_with("reference") {
            continue;
        }
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !name.ends_with(".md") && !name.ends_with(".tsv") {
                found.insert(name, row(&path));
            }
        }
        let rows = found.iter().map(|(name, row)| format!("{name}\t{row}\n"));
        let now = format!("{HEADER}\n{}", rows.collect::<String>());
        let file = folder.join("counts.tsv");
        if std::env::var_os("ENDSTOP_WRITE_COUNTS").is_some() {
            fs::write(&file, &now).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(now, stored, "{}: ENDSTOP_WRITE_COUNTS=1 writes it", file.display());
        checked += found.len();
    }
    assert!(checked >= 50, "{checked}");
}

#[test]
fn each_format_has_a_fixture() {
    let mut read = BTreeSet::new();
    for path in fixtures() {
        let (runs, _) = read_with(path, &Options::default());
        read.extend(runs.iter().map(|run| run.origin.format));
    }
    for (name, about) in formats() {
        assert!(read.contains(name), "no fixture of {name}: {about}");
    }
}

#[test]
fn each_fixture_has_an_origin() {
    let origins = fs::read_to_string(fixture("LICENCES.md")).unwrap();
    for folder in fs::read_dir(fixture("")).unwrap() {
        let folder = folder.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        // A folder may state its origins itself.
        if folder.is_dir() && !folder.join("LICENCES.md").exists() {
            assert!(origins.contains(&format!("`{name}/")), "LICENCES.md does not name {name}/");
        }
    }
}
