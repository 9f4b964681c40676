//! MCP over streamable HTTP. Requests of the older versions belong to a session, which survives a lost connection. A
//! request of the newest version is independent, and a lost connection cancels it.

use super::event_log::{EventLog, EventStream, parse_id};
use super::guard::{Reply, error_reply, json_reply};
use super::headers::{self, HeaderError, Lifecycle, SESSION};
use super::sessions::{Session, Sessions};
use crate::rpc::message::{INVALID_REQUEST, METHOD_NOT_FOUND, Message, Request, RpcError};
use crate::rpc::server::{Context, Handler, Outbox, answer, is_method};
use crate::rpc::version::{Mode, admit};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The MCP service.
pub struct Service {
    pub server: Arc<dyn Handler>,
    pub sessions: Arc<Sessions>,
}

impl Service {
    /// Answers a request. Each call runs in a separate task; the response is a stream.
    pub fn handle(&self, method: &Method, headers: &HeaderMap, body: &Bytes) -> Reply {
        let handled = match *method {
            Method::POST => self.post(headers, body),
            Method::GET => self.get(headers),
            Method::DELETE => self.delete(headers),
            _ => Err(not_allowed("GET, POST, DELETE")),
        };
        handled.unwrap_or_else(|refused| *refused)
    }

    fn post(&self, headers: &HeaderMap, body: &Bytes) -> Result<Reply, Box<Reply>> {
        if !headers::accepts_both(headers) {
            let why = "the client must accept application/json and text/event-stream";
            return Err(refuse(StatusCode::NOT_ACCEPTABLE, "not_acceptable", why));
        }
        let unsupported = |why: &str| refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_message", why);
        if !headers::is_json(headers) {
            return Err(unsupported("the content type must be application/json"));
        }
        let message = Message::parse(body).map_err(|why| unsupported(&format!("invalid message: {why}")))?;
        match headers::lifecycle(headers, &message).map_err(refuse_headers)? {
            Lifecycle::Stateless => self.stateless(message),
            Lifecycle::Session => self.in_session(headers, message),
        }
    }

    fn in_session(&self, headers: &HeaderMap, message: Message) -> Result<Reply, Box<Reply>> {
        if let Message::Request(request) = &message
            && request.method == "initialize"
        {
            let failed = |_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", "no random numbers");
            let session = self.sessions.begin().map_err(failed)?;
            let id = HeaderValue::try_from(&session.id);
            let mut reply = self.begin(&session, request.clone(), Mode::SESSION);
            reply.headers_mut().extend(id.ok().map(|id| (http::HeaderName::from_static(SESSION), id)));
            return Ok(reply);
        }
        let session = self.session(headers)?;
        Ok(match message {
            Message::Request(request) => match admit(&request, true) {
                Ok(mode) => self.begin(&session, request, mode),
                Err(error) => {
                    let log = Arc::new(EventLog::without_session());
                    log.push(&Message::response(request.id, Err(error)));
                    log.close();
                    stream_reply(log.events_from(0))
                }
            },
            Message::Notification(notification) => {
                if notification.method == "notifications/cancelled" {
                    session.calls.cancel(&notification.params);
                }
                accepted()
            }
            // Nothing was asked, so there is nothing to answer.
            Message::Response(_) => accepted(),
        })
    }

    /// Starts to answer a request of a session.
    fn begin(&self, session: &Arc<Session>, request: Request, mode: Mode) -> Reply {
        let (number, log) = session.open_stream();
        let stream = log.events_from(0);
        let id = request.id.clone();
        let Some(canceled) = session.calls.register(&id) else {
            let error = RpcError::new(INVALID_REQUEST, "too many open requests, or the id is in use");
            log.push(&Message::response(id, Err(error)));
            session.close_stream(number);
            return stream_reply(stream);
        };
        let (server, session) = (Arc::clone(&self.server), Arc::clone(session));
        let own = session.own_stream().map(Outbox::Log);
        tokio::spawn(async move {
            let context = Context { mode, canceled, out: Outbox::Log(Arc::clone(&log)), session: own };
            // unbounded: the handler has its own limits
            let result = answer(&*server, request, context).await;
            if session.calls.close(&id) {
                log.push(&Message::response(id, result));
            }
            session.close_stream(number);
        });
        stream_reply(stream)
    }

    fn stateless(&self, message: Message) -> Result<Reply, Box<Reply>> {
        let request = match message {
            Message::Request(request) => request,
            Message::Notification(_) => return Ok(accepted()),
            Message::Response(_) => {
                let error = RpcError::new(INVALID_REQUEST, "nothing was asked");
                let reply = Message::Response(crate::rpc::message::Response { id: None, result: Err(error) });
                return Err(rpc_refusal(StatusCode::BAD_REQUEST, &reply));
            }
        };
        let id = request.id.clone();
        let mode = match admit(&request, false) {
            Ok(_) if !is_method(&request.method) => {
                Err((StatusCode::NOT_FOUND, RpcError::new(METHOD_NOT_FOUND, request.method.clone())))
            }
            Ok(mode) => Ok(mode),
            Err(error) if error.code == METHOD_NOT_FOUND => Err((StatusCode::NOT_FOUND, error)),
            Err(error) => Err((StatusCode::BAD_REQUEST, error)),
        };
        let mode =
            mode.map_err(|(status, error)| rpc_refusal(status, &Message::response(id.clone(), Err(error))))?;
        let (log, canceled) = (Arc::new(EventLog::without_session()), CancellationToken::new());
        let stream = log.events_from(0).cancel_on_disconnect(canceled.clone());
        let server = Arc::clone(&self.server);
        tokio::spawn(async move {
            let context = Context { mode, canceled, out: Outbox::Log(Arc::clone(&log)), session: None };
            // unbounded: the handler has its own limits
            let result = answer(&*server, request, context).await;
            log.push(&Message::response(id, result));
            log.close();
        });
        Ok(stream_reply(stream))
    }

    /// Opens the session's own stream, or resumes the stream of a request.
    fn get(&self, headers: &HeaderMap) -> Result<Reply, Box<Reply>> {
        if !headers::accepts_events(headers) {
            let why = "the client must accept text/event-stream";
            return Err(refuse(StatusCode::NOT_ACCEPTABLE, "not_acceptable", why));
        }
        let session = self.old_session(headers)?;
        let own = || session.own_stream().ok_or_else(no_session);
        let Some(last) = headers::text(headers, "last-event-id") else {
            return Ok(stream_reply(own()?.own_events_from(0)));
        };
        let resumed =
            parse_id(last).and_then(|(number, index)| Some((number, index, session.stream(number)?)));
        Ok(match resumed {
            Some((0, index, log)) => stream_reply(log.own_events_from(index.saturating_add(1))),
            Some((_, index, log)) => stream_reply(log.events_from(index.saturating_add(1))),
            None => {
                // An error would make the client try again and again.
                let log = Arc::new(EventLog::without_session());
                log.close();
                stream_reply(log.events_from(0))
            }
        })
    }

    fn delete(&self, headers: &HeaderMap) -> Result<Reply, Box<Reply>> {
        let session = self.old_session(headers)?;
        self.sessions.end(&session.id);
        // Some clients treat "accepted" as an error.
        Ok(Response::new(Empty::new().boxed()))
    }

    /// Returns the session of a request that only the older versions have.
    fn old_session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Box<Reply>> {
        match headers::lifecycle_without_message(headers).map_err(refuse_headers)? {
            Lifecycle::Session => self.session(headers),
            Lifecycle::Stateless => Err(not_allowed("POST")),
        }
    }

    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Box<Reply>> {
        let Some(id) = headers::text(headers, SESSION) else {
            let why = "the Mcp-Session-Id header is missing";
            return Err(refuse(StatusCode::BAD_REQUEST, "no_session_id", why));
        };
        self.sessions.find(id).ok_or_else(no_session)
    }
}

fn no_session() -> Box<Reply> {
    refuse(StatusCode::NOT_FOUND, "no_session", "the session does not exist or is over")
}

fn refuse(status: StatusCode, code: &str, why: &str) -> Box<Reply> {
    Box::new(error_reply(status, code, why))
}

fn refuse_headers(error: HeaderError) -> Box<Reply> {
    match error {
        HeaderError::UnknownVersion => {
            let why = "the version in the MCP-Protocol-Version header is not supported";
            refuse(StatusCode::BAD_REQUEST, "unsupported_version", why)
        }
        HeaderError::Rpc(id, error) => {
            let response = crate::rpc::message::Response { id, result: Err(error) };
            rpc_refusal(StatusCode::BAD_REQUEST, &Message::Response(response))
        }
    }
}

fn rpc_refusal(status: StatusCode, message: &Message) -> Box<Reply> {
    let body = serde_json::from_str(&message.to_json()).unwrap_or_default();
    Box::new(json_reply(status, &body))
}

fn not_allowed(allowed: &'static str) -> Box<Reply> {
    let mut reply = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not allowed here");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

fn accepted() -> Reply {
    let mut reply = Response::new(Empty::new().boxed());
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

fn stream_reply(stream: EventStream) -> Reply {
    let mut reply = Response::new(stream.boxed());
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}
