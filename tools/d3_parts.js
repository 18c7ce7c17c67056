// The parts of D3 that the live page uses, of which experiments/view/static/d3.min.js is made:
//
//     npm install d3@7.9.0 esbuild@0.24.2
//     npx esbuild tools/d3_parts.js --bundle --minify --format=iife --global-name=d3 --legal-comments=none \
//         --banner:js="// https://d3js.org v7.9.0 Copyright 2010-2023 Mike Bostock" --outfile=experiments/view/static/d3.min.js
//
// d3-transition gives selections their method transition().
import "d3-transition";
export {
  axisBottom, bisector, cross, interpolateRgb, least, max, min, scaleLinear, select, sum, zoom, zoomIdentity, zoomTransform,
} from "d3";
