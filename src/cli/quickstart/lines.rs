//! What is printed: lines to copy and paste, each of which works by itself.

use std::fmt::Write;

/// What the lines are about.
pub(super) struct Scene<'s> {
    /// The edge's origin, without a final slash.
    pub(super) url: &'s str,
    /// What is behind it, in words.
    pub(super) gateway: &'s str,
    /// Alice's and bob's session tokens.
    pub(super) alice: &'s str,
    pub(super) bob: &'s str,
    /// Where a Hermes of somebody's own seems to run.
    pub(super) running: Option<&'s str>,
}

/// The whole text.
pub(super) fn ready(scene: &Scene<'_>) -> String {
    let Scene { url, gateway, alice, bob, running } = scene;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "botgate listens on {url}. Behind it: {gateway}.\n\n\
         alice's session: {alice}\n\
         bob's session:   {bob}\n\n\
         Ask alice's bot, streamed:\n\n\
         curl -sN {url}/v1/chat/completions -H 'Authorization: Bearer {alice}' -H 'Content-Type: application/json' \
         -d '{{\"model\":\"bot-alice\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Who are you?\"}}]}}'\n\n\
         The same path with bob's session is bob's bot:\n\n\
         curl -s {url}/v1/models -H 'Authorization: Bearer {bob}'\n\n\
         Alice asks for bob's bot and gets the one 401:\n\n\
         curl -si {url}/p/bot-bob/v1/models -H 'Authorization: Bearer {alice}'\n\n\
         With the OpenAI SDK (pip install openai):\n\n\
         python3 - <<'PYTHON'\n\
         from openai import OpenAI\n\
         client = OpenAI(base_url=\"{url}/v1\", api_key=\"{alice}\")\n\
         stream = client.chat.completions.create(\n    \
         model=\"bot-alice\", stream=True, messages=[{{\"role\": \"user\", \"content\": \"Who are you?\"}}]\n\
         )\n\
         for chunk in stream:\n    \
         if chunk.choices:\n        \
         print(chunk.choices[0].delta.content or \"\", end=\"\", flush=True)\n\
         print()\n\
         PYTHON"
    );
    if let Some(address) = running {
        let _ = writeln!(out, "\n{}", adoption(address));
    }
    out.push_str("\nCtrl-C ends it and leaves nothing.\n");
    out
}

/// How to put botgate in front of the Hermes that runs already.
fn adoption(address: &str) -> String {
    format!(
        "A Hermes seems to run on {address}; it was not touched. To put botgate in front of its profile bot-alice:\n\n\
         botgate init --dir botgate && cd botgate    # its [[gateway]] url is http://{address}\n\
         botgate user add alice\n\
         sed -n 's/^API_SERVER_KEY=//p' ~/.hermes/profiles/bot-alice/.env | botgate bot adopt alice --api-server-key-stdin\n\
         botgate session create alice\n\
         botgate serve    # as another user than Hermes, or with allow_same_user = true to try it out"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_its_own_credential() {
        let scene =
            Scene { url: "http://127.0.0.1:1", gateway: "the stand-in", alice: "AAA", bob: "BBB", running: None };
        let text = ready(&scene);
        let curls: Vec<&str> = text.lines().filter(|line| line.starts_with("curl ")).collect();
        assert_eq!(curls.len(), 3);
        assert!(curls[0].contains("Bearer AAA") && curls[0].contains(r#"-d '{"model":"bot-alice","stream":true"#));
        assert!(curls[1].contains("Bearer BBB"));
        assert!(curls[2].contains("/p/bot-bob/") && curls[2].contains("Bearer AAA"));
        assert!(text.contains("\n    if chunk.choices:\n        print("), "{text}");
        assert!(!text.contains("bot adopt"));
        let text = ready(&Scene { running: Some("127.0.0.1:8642"), ..scene });
        assert!(text.contains("bot adopt alice --api-server-key-stdin") && text.contains("http://127.0.0.1:8642"));
    }
}
