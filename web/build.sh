#!/bin/sh
# Build the viewer into the Python package. Needs Node 20 or later and `npm ci` in this folder.
# With an argument, build into that folder instead (the test compares bytes).
set -eu
cd "$(dirname "$0")"
out="${1:-../python/tailback/report}"
node node_modules/typescript/bin/tsc --noEmit -p .
# d3's licence asks for its notice in every copy.
node_modules/.bin/esbuild src/main.ts --banner:js="$(cat d3-notice.js)" --bundle --minify --format=iife \
  --target=es2022 --charset=utf8 --legal-comments=none --outfile="$out/viewer.js" --log-level=warning
node_modules/.bin/esbuild src/viewer.css --bundle --minify --charset=utf8 \
  --legal-comments=none --outfile="$out/viewer.css" --log-level=warning
node_modules/.bin/esbuild src/evolution/main.ts --banner:js="$(cat d3-notice.js)" --bundle --minify --format=iife \
  --target=es2022 --charset=utf8 --legal-comments=none --outfile="$out/evolution.js" --log-level=warning
node_modules/.bin/esbuild src/evolution/evolution.css --bundle --minify --charset=utf8 \
  --legal-comments=none --outfile="$out/evolution.css" --log-level=warning
