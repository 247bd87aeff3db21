/** Numbers as people write them. */

const NONE = "–";

/** Scales a number down by thousands: 7087872 → [7.087872, " M"] with the units "", " k", " M", …. */
export function prefixed(x: number, units: readonly string[]): [scaled: number, unit: string] {
  let scaled = x;
  let unit = 0;
  while (Math.abs(scaled) >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit++;
  }
  return [scaled, units[unit]];
}

/** One decimal below a hundred: 7087872 → "7.1 M", 312 → "312". */
export function rounded(x: number, units: readonly string[]): string {
  const [scaled, unit] = prefixed(x, units);
  return `${unit === units[0] || Math.abs(scaled) >= 99.95 ? Math.round(scaled) : scaled.toFixed(1)}${unit}`;
}

/** A number with the given digits, very large and very small ones with an exponent: 0.00213, −3.11, 1.20e−8. */
export function written(x: number, digits: number): string {
  if (Number.isNaN(x)) return NONE;
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e6 || size < 1e-4 ? x.toExponential(2).replace("e+", "e") : String(Number(x.toPrecision(digits)));
  return text.replaceAll("-", "−");
}
