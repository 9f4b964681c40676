//! JSON schemas of types whose JSON form does not follow from their fields.

use crate::record::ids::{Iteration, NodeName, RunId};
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! looks_like {
    ($name:ident, $($schema:tt)+) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($($schema)+)
            }
        }
    };
}

looks_like!(Dur, {"type": "number", "minimum": 0, "description": "seconds"});
looks_like!(Wall, {"type": "string", "format": "date-time"});
looks_like!(RunId, {"type": "string", "pattern": "^[0-9]{8}-[0-9]{6}-[23456789bcdfghjkmnpqrstvwxz]{4}$"});
looks_like!(NodeName, {"type": "string", "minLength": 1});
looks_like!(Iteration, {"type": "integer", "minimum": 0});
