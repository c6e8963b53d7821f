//! Values that are one of a few words.

/// Declares an enum whose variants have words.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$( $name::$variant, )+];
            /// The words, in the same order.
            pub const NAMES: &'static [&'static str] = &[$( $word, )+];

            /// The word for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $( $name::$variant => $word, )+
                }
            }

            /// What `word` stands for.
            pub fn from_name(word: &str) -> Option<$name> {
                match word {
                    $( $word => Some($name::$variant), )+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }
    };
}

/// Declares an enum whose variants are written as words in a scenario.
macro_rules! choices {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $crate::format::words! {
            $(#[$meta])*
            pub enum $name { $( $(#[$vmeta])* $variant = $word, )+ }
        }

        impl $crate::format::reader::Field for $name {
            fn placeholder() -> $name {
                $name::ALL[0]
            }
            fn read(
                node: &$crate::format::document::Node,
                _: &$crate::format::schema::Kind,
            ) -> Result<$name, String> {
                $crate::format::reader::choice(node, $name::NAMES, $name::from_name)
            }
        }

        impl $crate::format::reader::Field for Vec<$name> {
            fn placeholder() -> Vec<$name> {
                Vec::new()
            }
            fn read(
                node: &$crate::format::document::Node,
                _: &$crate::format::schema::Kind,
            ) -> Result<Vec<$name>, String> {
                $crate::format::reader::choices(node, $name::NAMES, $name::from_name)
            }
        }
    };
}
pub(crate) use {choices, words};
