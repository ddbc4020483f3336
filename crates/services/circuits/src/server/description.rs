//! The description of the interface, as OpenAPI 3.1.
//!
//! Handlers describe what is their own; what all of a kind share is added here.

use axum::Json;
use axum::http::StatusCode;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, Content, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa::{OpenApi, openapi};

use super::input::KEY_MAX;
use super::{bookings, feeds, network, planning};

/// This description; needs no token.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Object)), security(()))]
pub(super) async fn describe() -> Json<openapi::OpenApi> {
    Json(document())
}

/// The OpenAPI document.
pub fn document() -> openapi::OpenApi {
    let mut document = Document::openapi();
    share(document.components.get_or_insert_default());
    for (path, item) in &mut document.paths.paths {
        let asks_who = path.starts_with("/v1/") && path != "/v1/health";
        let plans = path == "/v1/plan";
        for operation in item.get.iter_mut().chain(item.post.iter_mut().filter(|_| plans)) {
            complete(operation, if asks_who { &READ } else { &[] });
        }
        let changes = [&mut item.post, &mut item.patch, &mut item.delete];
        for operation in changes.into_iter().flatten().filter(|_| !plans) {
            let key = Ref::new(format!("#/components/parameters/{KEY}"));
            operation.parameters.get_or_insert_default().push(RefOr::Ref(key));
            complete(operation, &CHANGE);
        }
    }
    document
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longhaul circuits",
        description = "Books bandwidth as it varies over time (VBLS). Send the header \
            `Idempotency-Key` with whatever may be sent twice; errors are problems as in RFC 9457."
    ),
    paths(
        network::health,
        network::topology,
        network::add_link,
        network::availability,
        planning::plan,
        planning::explain,
        bookings::book,
        bookings::take,
        bookings::list,
        bookings::show,
        bookings::modify,
        bookings::commit,
        bookings::extend,
        bookings::release,
        bookings::cancel,
        bookings::cancel_series,
        bookings::replan,
        feeds::watch,
        feeds::usage,
        feeds::audit,
        feeds::calendar,
        feeds::metrics,
        describe,
    ),
    components(schemas(crate::api::Problem)),
    security(("token" = []))
)]
struct Document;

/// Answers and parameters that several operations have.
fn share(components: &mut Components) {
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("token", token);
    components.parameters.insert(KEY.into(), idempotency_key().into());
    for (_, name, description) in CHANGE {
        let problem = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new().description(description);
        let response = response.content("application/problem+json", problem).build();
        components.responses.insert(name.into(), response.into());
    }
}

fn idempotency_key() -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("What is sent again with the same key happens once."))
        .schema(Some(text.max_length(Some(KEY_MAX))))
        .build()
}

/// Adds the problems that its kind may meet, and words where a handler has none.
fn complete(operation: &mut Operation, problems: &[Shared]) {
    let responses = &mut operation.responses.responses;
    for (status, name, _) in problems {
        responses.insert((*status).into(), Ref::from_response_name(*name).into());
    }
    for (status, response) in responses {
        if let RefOr::T(Response { description, .. }) = response
            && description.is_empty()
        {
            let status = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            *description = status.and_then(|s| s.canonical_reason()).unwrap_or_default().into();
        }
    }
}

/// The component with the header.
const KEY: &str = "key";

/// A problem that several operations may meet: status, name, description.
type Shared = (&'static str, &'static str, &'static str);

const REFUSED: Shared = ("4XX", "refused", "It is not done; type and detail tell why");
const UNAUTHORIZED: Shared = ("401", "unauthorized", "No token, or one that is not known");
const UNAVAILABLE: Shared = ("503", "unavailable", "Not now, or not by this node; see type");
const FULL: Shared = ("507", "full", "The service's store is full; nothing was booked");
const TOO_MANY: Shared =
    ("429", "too-many", "The token asks too often, or has too much under way; see Retry-After");
/// Failures of reading.
const READ: [Shared; 4] = [REFUSED, UNAUTHORIZED, TOO_MANY, UNAVAILABLE];
/// Failures of a change.
const CHANGE: [Shared; 5] = [REFUSED, UNAUTHORIZED, TOO_MANY, UNAVAILABLE, FULL];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn written() -> Value {
        serde_json::to_value(document()).unwrap()
    }

    /// The target of a reference; anything else is itself.
    fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        match value.get("$ref") {
            None => value,
            Some(target) => {
                let pointer = target.as_str().unwrap().strip_prefix('#').unwrap();
                document.pointer(pointer).unwrap_or_else(|| panic!("{target} is nowhere"))
            }
        }
    }

    fn resolve_all(document: &Value, value: &Value) {
        resolved(document, value);
        match value {
            Value::Object(fields) => fields.values().for_each(|field| resolve_all(document, field)),
            Value::Array(items) => items.iter().for_each(|item| resolve_all(document, item)),
            _ => {}
        }
    }

    /// Path, method and description of each operation.
    fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        });
        operations.collect()
    }

    /// Names of an operation's parameters of a place (path, query, header).
    fn parameters<'a>(document: &'a Value, operation: &'a Value, place: &str) -> BTreeSet<&'a str> {
        let all = operation["parameters"].as_array().into_iter().flatten();
        let all = all.map(|parameter| resolved(document, parameter));
        let of_place = all.filter(|parameter| parameter["in"] == place);
        of_place.map(|parameter| parameter["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn it_is_openapi_3_1_and_all_that_it_refers_to_is_there() {
        let document = written();
        assert_eq!(document["openapi"], "3.1.0");
        resolve_all(&document, &document);
        let operations = operations(&document);
        let names: BTreeSet<_> =
            operations.iter().map(|(_, _, it)| it["operationId"].as_str().unwrap()).collect();
        assert_eq!(names.len(), operations.len(), "{names:?}");
    }

    #[test]
    fn parameters_are_where_the_handlers_look_for_them() {
        let document = written();
        for (path, method, operation) in operations(&document) {
            let segments = path.split('/');
            let template: BTreeSet<_> =
                segments.filter_map(|it| it.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(parameters(&document, operation, "path"), template, "{method} {path}");
            let query: &[&str] = match (method, path) {
                ("get", "/v1/bookings") => {
                    &["project", "link", "from", "to", "all", "after", "limit"]
                }
                ("get", "/v1/audit") => &["after", "limit"],
                ("get", "/v1/calendar.ics") => &["token"],
                ("get", "/v1/links/{name}/availability") => &["from", "to"],
                _ => &[],
            };
            let query = query.iter().copied().collect();
            assert_eq!(parameters(&document, operation, "query"), query, "{method} {path}");
            let header: &[&str] = match (method, path) {
                ("get", "/v1/watch") => &["Last-Event-ID"],
                ("get", _) | (_, "/v1/plan") => &[],
                _ => &["Idempotency-Key"],
            };
            let header = header.iter().copied().collect();
            assert_eq!(parameters(&document, operation, "header"), header, "{method} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let parameter = resolved(&document, parameter);
                let needed = parameter["in"] == "path" || parameter["name"] == "token";
                assert_eq!(parameter["required"], needed, "{method} {path}: {parameter}");
            }
        }
    }

    #[test]
    fn every_answer_is_described() {
        let document = written();
        for (path, method, operation) in operations(&document) {
            let answers = operation["responses"].as_object().unwrap();
            for (status, answer) in answers {
                let answer = resolved(&document, answer);
                let description = answer["description"].as_str().unwrap_or_default();
                assert!(!description.is_empty(), "{method} {path}: {status}");
                let is_problem = answer["content"].get("application/problem+json").is_some();
                let problem = !status.starts_with('2') && path != "/v1/health";
                assert_eq!(is_problem, problem, "{method} {path}: {status}");
            }
            let has = |status: &str| answers.contains_key(status);
            let asks_who = path.starts_with("/v1/") && path != "/v1/health";
            for status in ["401", "429", "4XX"] {
                assert_eq!(has(status), asks_who, "{method} {path}: {status}");
            }
            assert_eq!(has("503"), path.starts_with("/v1/"), "{method} {path}");
            let changes = method != "get" && path != "/v1/plan";
            assert_eq!(has("507"), changes, "{method} {path}");
            assert!(!has("201") || has("200"), "{method} {path}: its key may have come before");
        }
    }
}
