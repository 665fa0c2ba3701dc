//! Kafka that asks for TLS and logins: what is right works, and what is wrong ends in one sentence with
//! broker, step and cause, within 15 s, and without a secret.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::figure;
use common::orders::Story;
use common::services::Services;

/// How long the sentence may take: the program asks for 10 s.
const SOON: Duration = Duration::from_secs(15);

/// A password that must be nowhere.
const WRONG: &str = "hunter2";

/// FR-63: all of it on one broker.
#[test]
fn tls_and_logins_work_and_what_is_wrong_is_one_sentence() {
    let services = Services::start(0, 1, true);
    let mut story = Story::on(&services.brokers(), "secured", 2, 1);
    story.produce(0..500);
    let (sasl, tls) = (services.sasl(), services.tls());
    let setting = |name: &str, value: &str| format!("{name}={value}");
    let ca = setting("ssl.ca.location", &services.certificate("ca.pem"));
    let certificate = setting("ssl.certificate.location", &services.certificate("client.pem"));
    let key = setting("ssl.key.location", &services.certificate("client.key"));
    let args = |brokers: &str, settings: &[&str]| {
        let settings = settings.iter().flat_map(|setting| ["-X", setting]);
        ["--brokers", brokers].into_iter().chain(settings).map(str::to_owned).collect::<Vec<_>>()
    };
    fn bare(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }

    // What is right: a client's certificate, and both kinds of login.
    let with_tls = ["security.protocol=ssl", &ca, &certificate, &key];
    let line = story.does("run", &[&bare(&args(&tls, &with_tls))[..], &["--until-end"]].concat());
    assert_eq!(figure(&line, "consumed"), 500);
    let mut total = 500;
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        // As one would who keeps passwords off command lines.
        let mut file = tempfile(&format!(
            "# how to log in\nsecurity.protocol=sasl_ssl\n{ca}\nsasl.mechanism = {mechanism}\n\
             sasl.username=alice\nsasl.password=alice-secret\n"
        ));
        file.0.flush().unwrap();
        story.produce(total..total + 500);
        total += 500;
        let more = ["--brokers", &sasl, "--kafka-config", &file.1, "--until-end"];
        assert_eq!(figure(&story.does("run", &more), "consumed"), total);
        std::fs::remove_file(&file.1).unwrap();
    }
    let expected = common::model((0..total).map(common::Order::event));
    let table = format!("{}.valid_orders", story.schema);
    assert_eq!(common::rows(&mut story.client, &table), expected);

    // What is wrong.
    let login = |mechanism: &'static str, password: &str| -> Vec<String> {
        let mechanism = setting("sasl.mechanism", mechanism);
        let password = setting("sasl.password", password);
        let user = "sasl.username=alice";
        args(&sasl, &["security.protocol=sasl_ssl", &ca, &mechanism, user, &password])
    };
    let other_ca = setting("ssl.ca.location", &services.certificate("other-ca.pem"));
    let ssl = "security.protocol=ssl";
    let (hello, verify) = ("APIVERSION_QUERY", "certificate verify failed");
    let wrong: [(&str, Vec<String>, i32, &[&str]); 10] = [
        ("plain to TLS", args(&tls, &[]), 4, &[&tls, hello, "`security.protocol`", "asks for TLS"]),
        ("plain to SASL", args(&sasl, &[]), 4, &[&sasl, hello, "`security.protocol`"]),
        ("TLS to plain", args(&services.brokers(), &[ssl]), 4, &["SSL_HANDSHAKE", "PLAINTEXT"]),
        (
            "another CA",
            args(&tls, &[ssl, &other_ca]),
            4,
            &[&tls, "SSL_HANDSHAKE", verify, "ssl.ca"],
        ),
        ("no certificate", args(&tls, &[ssl, &ca]), 4, &[&tls, "certificate", "TLS settings"]),
        ("wrong password", login("SCRAM-SHA-256", WRONG), 4, &[&sasl, "AUTH", "credentials"]),
        ("wrong password", login("PLAIN", WRONG), 4, &[&sasl, "AUTH", "Invalid username"]),
        ("not on the broker", login("SCRAM-SHA-512", WRONG), 4, &[&sasl, "SCRAM-SHA-512", "PLAIN"]),
        ("not in the build", login("GSSAPI", WRONG), 3, &["GSSAPI", "does not start"]),
        ("no mechanism", login("FOO", WRONG), 3, &["FOO", "does not start"]),
    ];
    for (name, args, code, parts) in wrong {
        let began = Instant::now();
        let told = story.fails("run", &bare(&args), code);
        assert!(began.elapsed() < SOON, "{name}: {:?}", began.elapsed());
        assert!(!told.contains(WRONG), "{name}: {told}");
        for part in parts {
            assert!(told.contains(part), "{name}, {part}: {told}");
        }
    }

    // A line that is no setting is told by its number: it may be the password.
    let mut file = tempfile(&format!("sasl.username=alice\n{WRONG}\n"));
    file.0.flush().unwrap();
    let told = story.fails("run", &["--kafka-config", &file.1], 3);
    assert!(told.contains("line 2") && !told.contains(WRONG), "{told}");
    std::fs::remove_file(&file.1).unwrap();
    story.forget();
}

/// A file with `text`, and its path.
fn tempfile(text: &str) -> (std::fs::File, String) {
    let path = std::env::temp_dir().join(common::unique("tidegate-settings"));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    (file, path.display().to_string())
}
