/** Formats all numbers that a person reads. */

const NO_VALUE = "–";

/** Scales a number down by thousands: 7087872 → [7.087872, " M"] with the units "", " k", " M", …. */
export function scaleToUnit(x: number, units: readonly string[]): [scaled: number, unit: string] {
  let mantissa = x;
  let unit = 0;
  while (Math.abs(mantissa) >= 999.5 && unit < units.length - 1) {
    mantissa /= 1000;
    unit++;
  }
  return [mantissa, units[unit]];
}

/** Rounds to one decimal below a hundred: 7087872 → "7.1 M", 312 → "312". */
function formatRounded(x: number, units: readonly string[]): string {
  if (Number.isNaN(x)) return NO_VALUE;
  const [mantissa, unit] = scaleToUnit(x, units);
  return `${unit === units[0] || Math.abs(mantissa) >= 99.95 ? Math.round(mantissa) : mantissa.toFixed(1)}${unit}`;
}

/** Formats a number with the given digits, very large and very small ones with an exponent: 0.00213, −3.11, 1.20e−8. */
export function formatNumber(x: number, digits: number): string {
  if (Number.isNaN(x)) return NO_VALUE;
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e6 || size < 1e-4 ? x.toExponential(2).replace("e+", "e") : String(Number(x.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

const INTEGERS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Formats a count in full: 1897 → "1,897". */
export function integer(count: number): string {
  return INTEGERS.format(count).replace("-", "−");
}

/** Formats a count with its noun: 1 → "1 node", 3 → "3 nodes". */
export function countOf(count: number, noun: string): string {
  return `${integer(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Formats a count with a unit prefix: 7087872 → "7.1 M". */
export function formatCompact(count: number): string {
  return formatRounded(count, ["", " k", " M", " G", " T", " P"]);
}

/** Formats a size: 2400000 → "2.4 MB". */
export function bytes(count: number): string {
  return formatRounded(count, [" B", " kB", " MB", " GB", " TB", " PB"]);
}

/** Formats an error, of which only the magnitude matters: 0.05 → "5.0e−2", 4.25 → "4.3". */
export function magnitude(x: number): string {
  if (Number.isNaN(x)) return NO_VALUE;
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size >= 0.1 && size < 999.5) {
    return (size < 99.5 ? x.toPrecision(2) : String(Math.round(x))).replace("-", "−");
  }
  return x.toExponential(1).replaceAll("-", "−").replace("+", "");
}

/** Formats a duration: 0.0021 → "2.1 ms". */
export function seconds(x: number, digits: number): string {
  if (x === 0) return "0 s";
  const size = Math.abs(x);
  const [factor, unit] = size < 1e-3 ? [1e6, "µs"] : size < 1 ? [1e3, "ms"] : [1, "s"];
  return `${formatNumber(x * factor, digits)} ${unit}`;
}

/** Formats a share: "12.3%". */
export const percent = (x: number): string => `${(100 * x).toFixed(1)}%`;
