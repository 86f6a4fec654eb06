//! `GET /v1/openapi.json`: the API as an OpenAPI 3.1 document, made from the table of operations.

use super::operations::{Answered, Operation};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Returns the document.
pub(super) fn openapi(operations: &[Operation]) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation, &mut generator);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Endstop",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs of named agents, each with one typed ending.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn described(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|(place, name, meaning)| {
            json!({"in": place, "name": name, "description": meaning, "schema": {"type": "string"}})
        })
        .collect();
    if operation.path.contains("{id}") {
        parameters.push(json!({
            "in": "path", "name": "id", "required": true, "schema": {"type": "string"},
        }));
    }
    let mut answers = Map::new();
    match operation.answer {
        Answered::Json(status, schema) => {
            let content = json!({"application/json": {"schema": schema(generator)}});
            let answer = json!({"description": "done", "content": content});
            answers.insert(status.to_string(), answer);
        }
        Answered::Text(kind) => {
            let content = json!({kind: {"schema": {"type": "string"}}});
            answers.insert("200".to_owned(), json!({"description": "done", "content": content}));
        }
    }
    let always = [
        (400, "the request is not valid, or has a token in its URL"),
        (401, "no valid token"),
        (403, "the request comes from another website"),
        (421, "the Host header names another server"),
    ];
    for (status, meaning) in always.iter().chain(operation.errors) {
        answers.insert(status.to_string(), json!({"description": meaning}));
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": answers,
    });
    if let Some(schema) = operation.request {
        let content = json!({"application/json": {"schema": schema(generator)}});
        described["requestBody"] = json!({"required": true, "content": content});
    }
    described
}
