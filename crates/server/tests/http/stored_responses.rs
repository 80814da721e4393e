//! Stored responses.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::{Running, options, shared, with};

const RESPONSES: &str = "/v1/responses";

fn server(keys: &[&str]) -> Running {
    let mut options = options();
    options.http.store_responses_bytes = Some(1 << 20);
    options.http.api_keys = keys.iter().map(|key| (*key).to_owned()).collect();
    Running::start(options)
}

fn body(input: &str) -> Value {
    json!({"model": "demo", "temperature": 0, "max_output_tokens": 16, "input": input})
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

fn with_key(server: &Running, method: &str, path: &str, key: &str, body: &Value) -> Reply {
    let key = format!("Bearer {key}");
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
    ];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    server.request(method, path, &headers, body.as_bytes())
}

#[test]
fn a_response_is_kept_and_gone_on_from() {
    let server = server(&[]);
    let first = server.ask(
        RESPONSES,
        &with(
            body("What is 7 plus 5?"),
            json!({"instructions": "Be brief."}),
        ),
    );
    assert_eq!(
        (&first["store"], &first["previous_response_id"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        server.get(&format!("{RESPONSES}/{}", id(&first))).json(),
        first
    );

    let next = with(
        body("And 2 plus 2?"),
        json!({"previous_response_id": id(&first)}),
    );
    let second = server.ask(RESPONSES, &next);
    assert_eq!(second["previous_response_id"], first["id"]);
    // Equal to sending the conversation whole, without the instructions of the first request.
    let whole = json!([{"role": "user", "content": "What is 7 plus 5?"}, first["output"][0], {"role": "user", "content": "And 2 plus 2?"}]);
    let whole = server.ask(RESPONSES, &with(body(""), json!({"input": whole})));
    let text = |response: &Value| response["output"][0]["content"][0]["text"].clone();
    assert_eq!(text(&second), text(&whole));
    assert_eq!(
        second["usage"]["input_tokens"],
        whole["usage"]["input_tokens"]
    );
    let counted = server.ask(&format!("{RESPONSES}/input_tokens"), &next);
    assert_eq!(counted["input_tokens"], second["usage"]["input_tokens"]);

    // A stream is kept as reported at its end, and can also continue a response.
    let events = server
        .post(RESPONSES, &with(next, json!({"stream": true})))
        .events();
    let last: Value = serde_json::from_str(&events.last().unwrap().1).unwrap();
    let streamed = &last["response"];
    assert_eq!(
        (&streamed["store"], text(streamed)),
        (&json!(true), text(&second))
    );
    assert_eq!(
        &server.get(&format!("{RESPONSES}/{}", id(streamed))).json(),
        streamed
    );

    let items = |query: &str| {
        server
            .get(&format!("{RESPONSES}/{}/input_items{query}", id(&second)))
            .json()
    };
    let all = items("?order=asc");
    let roles: Vec<&str> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(
        (&all["has_more"], &all["first_id"]),
        (&json!(false), &all["data"][0]["id"])
    );
    let newest = items("?limit=1");
    assert_eq!(
        (&newest["data"][0], &newest["has_more"]),
        (&all["data"][2], &json!(true))
    );
    let after = items(&format!("?after={}", newest["last_id"].as_str().unwrap()));
    assert_eq!(after["data"], json!([all["data"][1], all["data"][0]]));
    for query in ["?limit=0", "?order=up", "?after=nobody"] {
        let reply = server.get(&format!("{RESPONSES}/{}/input_items{query}", id(&second)));
        assert_eq!(reply.status, 400, "{query}");
    }

    let path = format!("{RESPONSES}/{}", id(&first));
    let deleted = server.request("DELETE", &path, &[], b"");
    assert_eq!(
        deleted.json(),
        json!({"id": first["id"], "object": "response", "deleted": true})
    );
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(server.request("DELETE", &path, &[], b"").status, 404);
    // The response that continues it still has its conversation.
    let third = with(body("And?"), json!({"previous_response_id": id(&second)}));
    assert!(
        server.ask(RESPONSES, &third)["usage"]["input_tokens"].as_u64()
            > second["usage"]["input_tokens"].as_u64()
    );
    let gone = server.post(
        RESPONSES,
        &with(body("And?"), json!({"previous_response_id": id(&first)})),
    );
    assert_eq!(gone.status, 400);
    assert_eq!(gone.json()["error"]["code"], "previous_response_not_found");
    // A request can opt out.
    let unkept = server.ask(RESPONSES, &with(body("hi"), json!({"store": false})));
    assert_eq!(unkept["store"], false);
    assert_eq!(
        server.get(&format!("{RESPONSES}/{}", id(&unkept))).status,
        404
    );
}

#[test]
fn each_key_sees_its_own() {
    let server = server(&["one", "two"]);
    let response = with_key(&server, "POST", RESPONSES, "one", &body("hi")).json();
    let path = format!("{RESPONSES}/{}", id(&response));
    let status = |method: &str, path: &str, key: &str| {
        with_key(&server, method, path, key, &Value::Null).status
    };
    assert_eq!(status("GET", &path, "two"), 404);
    assert_eq!(status("GET", &format!("{path}/input_items"), "two"), 404);
    assert_eq!(status("DELETE", &path, "two"), 404);
    let next = with(body("And?"), json!({"previous_response_id": id(&response)}));
    assert_eq!(
        with_key(&server, "POST", RESPONSES, "two", &next).status,
        400
    );
    assert_eq!(
        with_key(&server, "POST", RESPONSES, "one", &next).status,
        200
    );
    assert_eq!(status("GET", &path, "one"), 200);
}

#[test]
fn a_server_that_keeps_none_says_so() {
    let reply = shared().post(RESPONSES, &with(body("hi"), json!({"store": true})));
    assert_eq!((reply.status, &reply.json()["store"]), (200, &json!(false)));
    assert!(
        reply
            .header("x-millrace-left-out")
            .unwrap()
            .starts_with("store: ")
    );
    let plain = shared().post(RESPONSES, &body("hi"));
    assert_eq!(plain.header("x-millrace-left-out"), None);
    for path in ["/v1/responses/resp_1", "/v1/responses/resp_1/input_items"] {
        assert_eq!(shared().get(path).status, 501);
    }
    let reply = shared().post(
        RESPONSES,
        &with(body("hi"), json!({"previous_response_id": "resp_1"})),
    );
    assert!(reply.body.contains("--store-responses"), "{}", reply.body);
}
