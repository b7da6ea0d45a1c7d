//! Reads a declaration by its first key.
//!
//! A derived untagged enum would try each kind in turn, and lose the location of a misspelt field.

use super::Item;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

const KINDS: [&str; 9] = [
    "handle", "typedef", "enum", "flags", "struct", "union", "callback", "macro", "function",
];

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a declaration: {}", KINDS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let Some(kind) = map.next_key::<String>()? else {
            return Err(A::Error::custom("an empty declaration"));
        };
        let fields = MapAccessDeserializer::new(WithFirst {
            first: Some(kind.clone()),
            rest: map,
        });
        Ok(match kind.as_str() {
            "handle" => Item::Handle(Deserialize::deserialize(fields)?),
            "typedef" => Item::Typedef(Deserialize::deserialize(fields)?),
            "enum" => Item::Enum(Deserialize::deserialize(fields)?),
            "flags" => Item::Flags(Deserialize::deserialize(fields)?),
            "struct" => Item::Struct(Deserialize::deserialize(fields)?),
            "union" => Item::Union(Deserialize::deserialize(fields)?),
            "callback" => Item::Callback(Deserialize::deserialize(fields)?),
            "macro" => Item::Macro(Deserialize::deserialize(fields)?),
            "function" => Item::Function(Deserialize::deserialize(fields)?),
            other => return Err(A::Error::unknown_variant(other, &KINDS)),
        })
    }
}

/// A map whose first key was read already.
struct WithFirst<A> {
    first: Option<String>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithFirst<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(StringDeserializer::new(first)).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}
