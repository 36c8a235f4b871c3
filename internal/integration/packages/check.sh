#!/usr/bin/env bash
# Checks what is given away, as far as that can be done here: `make packages` calls it. What cannot be done here is SKIPPED, aloud.
# What it never does: build the image itself (a Docker engine), and run programs of other systems.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

work=$(mktemp -d)
web=
trap '[[ -z $web ]] || kill "$web"; rm -rf "$work"' EXIT
begun=$SECONDS
done_() { echo "packages: $1: ok, $((SECONDS - begun)) s"; begun=$SECONDS; }
skipped() { echo "SKIPPED: $1"; }

diff <(bin/bulkscan __complete man '' 2>/dev/null | sed -n 's/^[a-z]*$/bulkscan-&.1/p') <(ls bin/share/man/man1 | grep -v '^bulkscan.1$')
if command -v mandoc >/dev/null; then
  mandoc -T lint bin/share/man/man1/*.1
  done_ "$(ls bin/share/man/man1 | wc -l) manual pages, one a command"
else
  skipped "whether manual pages are well-formed (mandoc is not on the PATH)"
fi
for shell in bash zsh fish; do
  file=bin/share/completions/bulkscan.$shell
  [[ $shell != zsh ]] || file=bin/share/completions/_bulkscan
  if command -v "$shell" >/dev/null; then "$shell" -n "$file"; else skipped "whether $shell reads its completions, and completes (it is not on the PATH)"; fi
done
[[ -e /usr/share/bash-completion/bash_completion ]] || skipped "whether bash completes (apt-get install bash-completion)"

.bin/actionlint
node internal/integration/packages/check.mjs
done_ "Dockerfile, workflows and metadata"

# goreleaser takes six minutes of a processor to compile. It makes the files of a release, for this platform alone: all six are another
# six minutes (`make snapshot`; the forge's workflow runs it).
[[ -z ${ALL:-} ]] || make --no-print-directory .bin/goreleaser
if [[ -x .bin/goreleaser ]]; then
  os=$(go env GOHOSTOS) arch=$(go env GOHOSTARCH) dist="$work/dist"
  .bin/goreleaser check --quiet
  { sed "s/^    goos: .*/    goos: [$os]/; s/^    goarch: .*/    goarch: [$arch]/" .goreleaser.yaml; echo "dist: $dist"; } >"$work/goreleaser.yaml"
  GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' PATH="$PWD/.bin:$PATH" \
    .bin/goreleaser release --snapshot --config "$work/goreleaser.yaml" >"$work/goreleaser.txt" 2>&1 || { cat "$work/goreleaser.txt"; exit 1; }
  (cd "$dist" && sha256sum --check --quiet checksums.txt && [[ $(wc -l <checksums.txt) == 2 ]]) # the archive, and what the program is made of
  mkdir "$work/unpacked"
  tar xzf "$dist"/*.tar.gz -C "$work/unpacked" --strip-components 1
  cmp "$work/unpacked/bulkscan" bin/bulkscan
  diff -r "$work/unpacked/man/man1" bin/share/man/man1
  diff -r "$work/unpacked/completions" bin/share/completions
  done_ "the files of a release for $os/$arch"
else
  skipped "goreleaser check, and the files of a release (make snapshot builds goreleaser, then those of all platforms)"
fi

# The system that differs most; with ALL each system and each architecture. `make snapshot` builds all six.
for platform in ${PLATFORMS:-windows/amd64 ${ALL:+darwin/arm64}}; do
  export GOOS=${platform%/*} GOARCH=${platform#*/}
  make --no-print-directory build OUT="$work/$GOOS-$GOARCH"
  [[ $GOOS == linux ]] || go vet -trimpath ./... # with the flags of the build, whose compiled packages it then finds
  done_ "$platform"
done
unset GOOS GOARCH

# Somewhere else and with no git about, the same source gives the same bytes; with REBUILD=1 with nothing compiled before. The clone that CI has made may
# belong to another user, whom git trusts only when told to.
mkdir "$work/elsewhere"
git -c safe.directory='*' ls-files -z | xargs -0 cp --parents -t "$work/elsewhere"
GOFLAGS="${GOFLAGS:-} ${REBUILD:+-a}" make -C "$work/elsewhere" --no-print-directory build VERSION="$(git describe --tags --always --dirty 2>/dev/null || true)"
make --no-print-directory build
cmp bin/bulkscan "$work/elsewhere/bin/bulkscan"
done_ "the same bytes again"

# What the program is made of is what go.mod requires, as far as it is linked.
.bin/cyclonedx-gomod bin -json -std -noserial -notimestamp -version v0.0.0 -output "$work/sbom.json" bin/bulkscan 2>"$work/sbom.log" || { cat "$work/sbom.log"; exit 1; }
diff <(go version -m bin/bulkscan | awk '$1 == "dep" {print $2 " " $3}' | LC_ALL=C sort) \
  <(node -e 'for (const c of JSON.parse(require("fs").readFileSync(process.argv[1])).components) if (c.name !== "std") console.log(c.name, c.version)' "$work/sbom.json" | LC_ALL=C sort)
done_ "bill of materials"

# The image, laid out by hand as the Dockerfile says: the program, the roots of certificate authorities and /data; run as its user
# with a root that nothing can be written to.
if ! unshare --mount true 2>/dev/null; then
  skipped "the image's claims (mounting needs root)"
  exit 0
fi
dockerfile() { awk -v word="$1" '$1 == word {value = $2} END {print value}' Dockerfile; }
uid=$(dockerfile USER)
roots=$(awk '/ca-certificates/ {print $NF}' Dockerfile)
mkdir -p "$work/image/usr/bin" "$work/image/$(dirname "$roots")" "$work/image/data" "$work/volume"
cp bin/bulkscan "$work/image/usr/bin/"
chown "$uid" "$work/volume"

contained() { # ARG…
  unshare --mount bash -euc '
    image=$1 volume=$2 dir=$3 setting=$4 uid=$5; shift 5
    mount --bind "$image" "$image"
    mount --bind "$volume" "$image$dir"
    mount -o remount,bind,ro "$image"
    exec env -i "$setting" "$(command -v unshare)" --root="$image" --wd="$dir" --setgid="${uid#*:}" --setuid="${uid%:*}" "$@"
  ' - "$work/image" "$work/volume" "$(dockerfile WORKDIR)" "$(dockerfile ENV)" "$uid" /usr/bin/bulkscan "$@"
}

contained demo --origins 300 >"$work/demo.txt" 2>&1 || { cat "$work/demo.txt"; exit 1; }
contained verify bulkscan-demo >/dev/null
[[ $(stat -c %u:%g "$work/volume/bulkscan-demo") == "$uid" ]]
echo example.com | contained scan - --dry-run >/dev/null # what is piped in is spooled
if contained schema >"$work/schema.txt" && contained man -o /man 2>"$work/man.txt"; then echo "the root of the image can be written to"; exit 1; fi
grep -q 'read-only file system' "$work/man.txt"

# The roots are where Go looks for them: with the simulated web's authority there, its certificates hold, and else not.
go build -o "$work/simweb" ./simweb/cmd/simweb
"$work/simweb" --ca "$work/ca.pem" >"$work/web.txt" & web=$!
for _ in {1..100}; do [[ -s $work/web.txt ]] && break; sleep 0.1; done
read -ra flags < <(sed 's/.*LIST //' "$work/web.txt")
asked() { contained check --strict-tls --no-fallback --retries 0 --json "${flags[@]}" https://ok.zoo.test | node -e 'console.log(JSON.parse(require("fs").readFileSync(0)).outcome)'; }
: >"$work/image$roots"
[[ $(asked) == tls_failed ]]
cp "$work/ca.pem" "$work/image$roots"
[[ $(asked) == answered ]]
done_ "the image's claims (the image itself was not built)"
