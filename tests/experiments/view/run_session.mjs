// Runs simulations of the page of a simulation under node; prints the SHA-256 of each one's events.
import {createHash} from "node:crypto";
import {readFileSync} from "node:fs";

const [site] = process.argv.slice(2);
const {loadPyodide} = await import(`${site}/pyodide/pyodide.mjs`);
const pyodide = await loadPyodide();
pyodide.unpackArchive(new Uint8Array(readFileSync(`${site}/weft.zip`)), "zip");
const {ViewerSession} = pyodide.pyimport("weft.daemons.simulator.viewer_session");
for (const {file, scheme, seed, steps, packets} of JSON.parse(readFileSync(0))) {
  const {topology} = JSON.parse(readFileSync(`${site}/${file}`));
  const network = pyodide.pyimport("pickle").loads(pyodide.toPy(new Uint8Array(Buffer.from(topology, "base64"))));
  const session = ViewerSession(network, scheme, pyodide.pyimport("random").Random(seed));
  const digest = createHash("sha256");
  for (const [us, request] of steps) {
    digest.update(session.run(us, packets));
    if (request) digest.update(session.do(JSON.stringify(request)));
  }
  console.log(digest.digest("hex"));
}
