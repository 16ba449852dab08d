//! The formats of JSON Schema, as patterns.
//!
//! Those of the specification (2020-12, validation, section 7.3) that regular expressions can
//! hold; the others are refused. A format that the specification doesn't define is an annotation,
//! as for validators.

/// What a format asks of a string.
pub(super) enum Format {
    /// To match all of these, in the notation of JSON Schema's patterns.
    Patterns(Vec<String>),
    /// Something that is not held.
    Refused,
    /// Nothing.
    Annotation,
}

/// What the format of this name asks.
pub(super) fn look_up(name: &str) -> Format {
    let pattern = match name {
        "date" => date(),
        "time" => time(),
        "date-time" => format!("{}[tT]{}", date(), time()),
        "duration" => duration(),
        "email" => email(),
        "hostname" => hostname(),
        "ipv4" => IPV4.to_owned(),
        "ipv6" => ipv6(),
        "uri" => uri(),
        "uri-reference" => format!("(?:{}|{})", uri(), relative()),
        "uuid" => "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}".to_owned(),
        "json-pointer" => "(?:/(?:[^~/]|~[01])*)*".to_owned(),
        "idn-email"
        | "idn-hostname"
        | "iri"
        | "iri-reference"
        | "regex"
        | "relative-json-pointer"
        | "uri-template" => return Format::Refused,
        _ => return Format::Annotation,
    };
    let length = (name == "hostname").then_some("^.{1,253}$");
    let patterns = [format!("^(?:{pattern})$")].into_iter();
    Format::Patterns(patterns.chain(length.map(str::to_owned)).collect())
}

/// `full-date` of RFC 3339, with the days that its months have.
fn date() -> String {
    let leap = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
    let long = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])";
    let short = r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)";
    let february = r"02-(?:0[1-9]|1\d|2[0-8])";
    format!(r"(?:\d{{4}}-(?:{long}|{short}|{february})|{leap}-02-29)")
}

/// `full-time` of RFC 3339. Leap seconds only where it is midnight in UTC by what is written.
fn time() -> String {
    let zone = r"(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)";
    let usual = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?";
    let leap = r"23:59:60(?:\.\d+)?(?:[zZ]|[+-]00:00)";
    format!("(?:{usual}{zone}|{leap})")
}

/// `duration` of RFC 3339, appendix A.
fn duration() -> String {
    let time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)";
    let date = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)";
    format!(r"P(?:\d+W|{date}(?:{time})?|{time})")
}

/// `Mailbox` of RFC 5321, section 4.1.2, without general address literals. What is before the `@`
/// has at most 64 characters (section 4.5.3.1.1); a regular expression cannot count across dots,
/// so that the more dots there are, the shorter is what may be between them.
fn email() -> String {
    let atom = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
    let several = [(31, 1, 1), (20, 2, 2), (15, 3, 3), (12, 4, 4), (7, 5, 7)];
    let several = several.map(|(length, least, most)| {
        format!(r"{atom}{{1,{length}}}(?:\.{atom}{{1,{length}}}){{{least},{most}}}")
    });
    let quoted = r#""(?:[ !#-\[\]-~]|\\[ -~]){0,31}""#;
    let before = format!("(?:{atom}{{1,64}}|{}|{quoted})", several.join("|"));
    let literal = format!(r"\[(?:{IPV4}|IPv6:{})\]", ipv6());
    format!("{before}@(?:{}|{literal})", hostname())
}

/// A name of RFC 1123, section 2.1.
fn hostname() -> String {
    let label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    format!(r"{label}(?:\.{label})*")
}

/// `dotted-quad` of RFC 2673, section 3.2.
const IPV4: &str =
    r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)";

/// `IPv6address` of RFC 3986, section 3.2.2, which is RFC 4291's.
fn ipv6() -> String {
    let h = "[0-9A-Fa-f]{1,4}";
    let end = format!("(?:{h}:{h}|{IPV4})");
    let mut forms = vec![format!("(?:{h}:){{6}}{end}"), format!("::(?:{h}:){{5}}{end}")];
    forms.push(format!("(?:{h})?::(?:{h}:){{4}}{end}"));
    for before in 1..=4 {
        let after = 4 - before;
        forms.push(format!("(?:(?:{h}:){{0,{before}}}{h})?::(?:{h}:){{{after}}}{end}"));
    }
    forms.push(format!("(?:(?:{h}:){{0,5}}{h})?::{h}"));
    forms.push(format!("(?:(?:{h}:){{0,6}}{h})?::"));
    format!("(?:{})", forms.join("|"))
}

/// A character of a path, without `:`.
const PATH_CHAR: &str = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";

/// `URI` of RFC 3986.
fn uri() -> String {
    format!("[A-Za-z][A-Za-z0-9+.-]*:(?:{}|{}){}", rooted(), rootless("(?::|", ")"), tail())
}

/// `relative-ref` of RFC 3986.
fn relative() -> String {
    format!("(?:{}|{}){}", rooted(), rootless("", ""), tail())
}

/// A path that begins with a slash, maybe after an authority, or no path.
fn rooted() -> String {
    let segments = format!("(?:/(?:{PATH_CHAR}|:)*)*");
    let user = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@";
    let name = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*";
    let future = r"v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+";
    let host = format!(r"(?:\[(?:{}|{future})\]|{name})", ipv6());
    let absolute = format!("(?:{PATH_CHAR}|:)+{segments}");
    format!(r"//(?:{user})?{host}(?::\d*)?{segments}|/(?:{absolute})?|")
}

/// A path that begins with a segment, whose characters are put between `before` and `after`.
fn rootless(before: &str, after: &str) -> String {
    format!("(?:{before}{PATH_CHAR}{after})+(?:/(?:{PATH_CHAR}|:)*)*")
}

/// Query and fragment.
fn tail() -> String {
    let chars = format!("(?:{PATH_CHAR}|[:/?])*");
    format!(r"(?:\?{chars})?(?:#{chars})?")
}
