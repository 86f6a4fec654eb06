//! The Parquet table of a backtest: one row for each run, with the step at which each candidate
//! fires.
//!
//! Rows are written in groups, so that memory does not grow with the number of runs. The column of
//! a candidate contains the step, from 1, at which it fires, also if that is the last step of the
//! run; it is null if the candidate does not fire.

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use endstop_trajectory::Trajectory;
use endstop_trajectory::backtest::Candidate;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of rows in a group.
const GROUP: usize = 10_000;

/// The result of a write.
type Written = std::result::Result<(), ParquetError>;

/// The columns before those of the candidates.
const COLUMNS: [(&str, Physical, Repetition); 6] = [
    ("dataset", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("run_id", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("task_id", Physical::BYTE_ARRAY, Repetition::OPTIONAL),
    ("model", Physical::BYTE_ARRAY, Repetition::OPTIONAL),
    ("success", Physical::BOOLEAN, Repetition::OPTIONAL),
    ("steps", Physical::INT32, Repetition::REQUIRED),
];

/// A Parquet file that is being written. Threads may add rows in any order.
pub(crate) struct Rows {
    path: PathBuf,
    table: Mutex<Table>,
}

struct Table {
    writer: SerializedFileWriter<File>,
    group: Group,
    /// The first error; after it nothing more is written.
    problem: Option<ParquetError>,
}

/// Rows that are not written yet, by column.
#[derive(Default)]
struct Group {
    datasets: Vec<ByteArray>,
    run_ids: Vec<ByteArray>,
    task_ids: Vec<Option<ByteArray>>,
    models: Vec<Option<ByteArray>>,
    success: Vec<Option<bool>>,
    steps: Vec<i32>,
    fired: Vec<Vec<Option<i32>>>,
}

impl Rows {
    /// Creates the file.
    pub(crate) fn new(new: &NewFile, candidates: &[Candidate]) -> Result<Rows> {
        let path = new.path();
        let wrong = |problem: String| failure(path, &problem);
        let taken = |one: &&Candidate| COLUMNS.iter().any(|(name, ..)| *name == one.name);
        if let Some(one) = candidates.iter().find(taken) {
            return Err(wrong(format!(
                "`{}` is already the name of a column; rename the candidate",
                one.name
            )));
        }
        let schema = schema(candidates).map_err(|error| wrong(error.to_string()))?;
        let file = new.create()?;
        let compression = Compression::ZSTD(parquet::basic::ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(compression).build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map_err(|error| wrong(error.to_string()))?;
        let group = Group { fired: vec![Vec::new(); candidates.len()], ..Group::default() };
        let table = Mutex::new(Table { writer, group, problem: None });
        Ok(Rows { path: path.to_owned(), table })
    }

    /// Adds one run.
    pub(crate) fn add(&self, dataset: &str, run: &Trajectory<'_>, fired: &[Option<u32>]) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.problem.is_some() {
            return;
        }
        let text = |text: &str| ByteArray::from(output::hidden(text).as_bytes().to_vec());
        // Saturating, because Parquet integers are signed and a step number beyond them is
        // impossible.
        let whole = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let group = &mut table.group;
        group.datasets.push(text(dataset));
        group.run_ids.push(text(&run.run_id));
        group.task_ids.push(run.task_id.as_deref().map(text));
        group.models.push(run.model.as_deref().map(text));
        group.success.push(run.recorded.success);
        group.steps.push(i32::try_from(run.turns().count()).unwrap_or(i32::MAX));
        for (column, at) in group.fired.iter_mut().zip(fired) {
            column.push(at.map(whole));
        }
        if group.steps.len() >= GROUP {
            table.problem = table.write().err();
        }
    }

    /// Writes the remaining rows and closes the file.
    pub(crate) fn finish(self) -> Result<()> {
        let mut table = self.table.into_inner().unwrap_or_else(PoisonError::into_inner);
        let written = match table.problem.take() {
            Some(problem) => Err(problem),
            None => table.write().and_then(|()| table.writer.close().map(drop)),
        };
        written.map_err(|error| failure(&self.path, &error.to_string()))?;
        crate::output::note(&format!("written: {}", self.path.display()));
        Ok(())
    }
}

impl Table {
    /// Writes the pending rows as one group.
    fn write(&mut self) -> Written {
        let candidates = self.group.fired.len();
        let next = Group { fired: vec![Vec::new(); candidates], ..Group::default() };
        let group = std::mem::replace(&mut self.group, next);
        if group.steps.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer.next_row_group()?;
        all::<ByteArrayType>(&mut writer, &group.datasets)?;
        all::<ByteArrayType>(&mut writer, &group.run_ids)?;
        some::<ByteArrayType>(&mut writer, group.task_ids)?;
        some::<ByteArrayType>(&mut writer, group.models)?;
        some::<BoolType>(&mut writer, group.success)?;
        all::<Int32Type>(&mut writer, &group.steps)?;
        for column in group.fired {
            some::<Int32Type>(&mut writer, column)?;
        }
        writer.close().map(drop)
    }
}

/// Writes a column without nulls.
fn all<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, values: &[T::T]) -> Written {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

/// Writes a column with nulls.
fn some<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: Vec<Option<T::T>>,
) -> Written {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    // Definition levels: 1 for a value, 0 for null. The values themselves are written without gaps.
    let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&there), None)?;
    column.close()
}

fn schema(candidates: &[Candidate]) -> std::result::Result<Type, ParquetError> {
    let fired = candidates
        .iter()
        .map(|candidate| (candidate.name.as_str(), Physical::INT32, Repetition::OPTIONAL));
    let fields = COLUMNS.into_iter().chain(fired).map(|(name, physical, repetition)| {
        let text = physical == Physical::BYTE_ARRAY;
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<std::result::Result<Vec<_>, _>>()?;
    Type::group_type_builder("runs").with_fields(fields).build()
}

fn failure(path: &Path, problem: &str) -> Failure {
    Failure::usage(format!("--parquet {}: {problem}", path.display()))
}
