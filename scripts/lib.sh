# shellcheck shell=bash
#
# What scripts/quickstart, scripts/test and scripts/check share. To be sourced.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# Building librdkafka and OpenSSL takes a C compiler with its headers, make, and a whole perl:
# Debian's perl-base lacks modules that OpenSSL's configuration uses.
have_cc() { printf '#include <stdio.h>\nint main(void) { return 0; }\n' | cc -x c - -o /dev/null 2>/dev/null; }
have_make() { command -v make >/dev/null; }
have_perl() { perl -MFindBin -MIPC::Cmd -MFile::Compare -MFile::Copy -e 1 2>/dev/null; }

# Checks what the build needs; installs what is missing where that is plainly wanted (root on
# Debian or Ubuntu, such as in a container), else says exactly what to install.
check_toolchain() {
  # rustup's default place, also in shells that were started before it was installed.
  if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  fi
  command -v cargo >/dev/null || die "there is no Rust toolchain; install one, as https://rustup.rs says."
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
  have=$(cd "$ROOT" && rustc --version | cut -d' ' -f2)
  printf '%s\n' "$wanted" "$have" | sort -CV || die "Rust $wanted or newer is needed, this is $have; run: rustup update"

  local missing=()
  have_cc || missing+=(gcc libc6-dev)
  have_make || missing+=(make)
  have_perl || missing+=(perl)
  ((${#missing[@]})) || return 0
  if [[ $EUID -eq 0 && -f /etc/debian_version ]] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]} with apt-get"
    local log
    log=$(mktemp)
    if ! {
      apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
    } </dev/null >"$log" 2>&1; then
      tail -n 15 -- "$log" >&2
      die "apt-get could not install ${missing[*]} (see above)."
    fi
    rm -f -- "$log"
  elif [[ -f /etc/debian_version ]]; then
    die "to build, this is missing: ${missing[*]}; run: sudo apt-get install ${missing[*]}"
  else
    die "to build, this is missing: ${missing[*]} (by Debian's names); install a C compiler, make and perl."
  fi
}

# Starts Kafka and PostgreSQL where they aren't running, exports where they are, and has what was
# started here stopped when the script ends, however it ends.
start_services() {
  local only exports
  for only in postgres kafka; do
    "$ROOT/scripts/services" status --only "$only" >/dev/null 2>&1 || STARTED+=("$only")
  done
  trap stop_services EXIT
  exports=$("$ROOT/scripts/services" up) || die "the services did not start."
  eval "$exports"
}

STARTED=()
stop_services() {
  local only
  for only in "${STARTED[@]}"; do
    "$ROOT/scripts/services" down --only "$only" || say "$only is left running; see scripts/services status"
  done
  STARTED=()
}

# timed NAME COMMAND...: runs it and says how long it took.
timed() {
  local name=$1 began=$SECONDS
  shift
  "$@"
  printf '%s: %s took %d s\n' "${0##*/}" "$name" "$((SECONDS - began))" >&2
}
