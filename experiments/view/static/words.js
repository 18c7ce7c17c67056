// A number and its noun.
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
