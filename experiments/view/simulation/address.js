// The address: #net=dcell:n=4,k=1&scheme=dr&seed=1&pace=1&do=2000000~fail~h0-h4~silent=true
const ARGUMENT = {fail: "what", restore: "what", degrade: "link", impair: "link", stop: "node", restart: "node", power: "node"};
const FIRST = {net: "dcell:n=4,k=1", scheme: "", seed: "1", pace: "0.1", path: "", do: ""};
const NUMBERS = {
  seed: ["a whole number from 0", value => /^[0-9]{1,15}$/.test(value)],
  pace: ["a number from 0.0001 to 100", value => value >= 1e-4 && value <= 100],
};
const ACTION = new RegExp(`^[0-9]{1,15}~(${Object.keys(ARGUMENT).join("|")})~[^~]+(~[a-z]+=[^~=]+)*$`);

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;  // a % that encodes nothing
  }
}

// Returns the network of `families` and its scheme; adds a line to `wrong` for what is not to be had.
function shown({net, scheme}, families, wrong) {
  const networks = families.flatMap(family => family.networks);
  const network = networks.find(({spec}) => spec === net) ?? networks[0];
  const {spec, schemes} = network;
  if (spec !== net) {
    wrong.push(`there is no network ${net} here, so this is ${spec} with ${schemes[0]}, without the address's actions and path`);
    return {network, scheme: schemes[0]};
  }
  if (!scheme || schemes.includes(scheme.split(":")[0])) return {network, scheme: scheme || schemes[0]};
  wrong.push(`${spec} has no scheme ${scheme} here, so this is ${schemes[0]}; it has ${schemes.join(", ")}`);
  return {network, scheme: schemes[0]};
}

// Returns the choices, the network of `families`, the actions [µs, request] by time, and one line if a part is wrong:
// what the page shows instead.
export function choicesOf(hash, families) {
  const parts = hash.slice(1).split("&").filter(Boolean).map(part => {
    const [key, ...values] = part.split("=");
    return [key, decoded(values.join("="))];
  });
  const unknown = parts.filter(([key]) => !Object.hasOwn(FIRST, key));
  const wrong = unknown.map(([key]) => `${key} is left out: an address has ${Object.keys(FIRST).join(", ")}`);
  const choices = {...FIRST, ...Object.fromEntries(parts.filter(part => !unknown.includes(part)))};
  const {network, scheme} = shown(choices, families, wrong);
  if (network.spec !== choices.net) Object.assign(choices, {net: network.spec, path: "", do: ""});
  choices.scheme = scheme;
  for (const [key, [words, isRight]] of Object.entries(NUMBERS)) {
    if (isRight(choices[key])) continue;
    wrong.push(`${key}=${choices[key]} is not ${words}, so it is ${FIRST[key]}`);
    choices[key] = FIRST[key];
  }
  const texts = choices.do ? choices.do.split(";") : [];
  const unreadable = texts.find(text => !ACTION.test(text));
  if (unreadable !== undefined) {
    wrong.push(`${unreadable} is no action, such as 1200000~fail~h0-h4; no action of this address is done`);
    choices.do = "";
  }
  const past = unreadable === undefined ? texts.map(actionOf).sort((a, b) => a[0] - b[0]) : [];
  return {choices, network, past, wrong: wrong.join("; ")};
}

function actionOf(text) {
  const [us, name, target, ...options] = text.split("~");
  const request = {do: name, [ARGUMENT[name]]: target};
  for (const option of options) {
    const [key, value] = option.split("=");
    request[key] = value === "true" ? true : value;
  }
  return [Number(us), request];
}

export function textOf([us, {do: name, ...values}]) {
  const {[ARGUMENT[name]]: target, ...options} = values;
  return [us, name, target, ...Object.entries(options).map(option => option.join("="))].join("~");
}
