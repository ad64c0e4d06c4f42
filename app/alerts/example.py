"""A file of rules to begin with, as `compileboard alerts example` prints it and docs/alerts.md shows it."""

EXAMPLE = """\
# Which findings CompileBoard tells whom. Check it: compileboard alerts check --rules alerts.toml
# Secrets are never in here: *_env names the environment variable that holds one.

base_url = "https://compileboard.example.org"   # the dashboard, for links in messages
timezone = "Europe/Berlin"                      # of quiet hours and digests

[channels.team]
kind = "slack"                                  # an incoming webhook of Slack, or what takes the same
url_env = "TEAM_WEBHOOK"

[channels.bot]
kind = "webhook"                                # JSON, described in docs/alerts.md
url_env = "BOT_WEBHOOK"
secret_env = "BOT_SECRET"                       # signs each message; may be left out

[channels.mail]
kind = "email"
host = "smtp.example.org"
port = 587
security = "starttls"                           # or tls, or none
username_env = "SMTP_USER"
password_env = "SMTP_PASSWORD"
from = "CompileBoard <compileboard@example.org>"
to = ["perf@example.org"]

[[rules]]
name = "slower"                                 # told at once, but not at night or at weekends
channels = ["team", "bot"]
direction = "worse"                             # worse (if not said), better or changed, or a list of them
subject = "model"                               # model, suite or runs
suite = ["torchbench", "huggingface"]           # suite, model, metric, branch, hardware: patterns
model = "*"
metric = ["speedup", "passes", "compilation_*"]
branch = "main"
least_percent = 3                               # smaller changes are left out; a failure has no size
quiet = "22:00-07:00"
quiet_days = ["sat", "sun"]

[[rules]]
name = "all-changes"                            # once a day, what got better too
channels = ["mail"]
direction = ["worse", "better", "changed"]
digest = "daily 08:00"                          # or weekly mon 08:00, or none
"""
