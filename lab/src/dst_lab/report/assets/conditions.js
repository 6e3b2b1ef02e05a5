/* What `dst show --where` understands: words with a sign (<= >= != == = < >) between a field and a value are conditions,
   of which a run fits all. Other words must be found somewhere in a run. */

/* Words, those in quotes whole. */
function wordsOf(text) {
  const joined = text.replace(/\s*(<=|>=|!=|==|=|<|>)\s*/g, "$1").replace(/,\s+/g, ",");
  return [...joined.matchAll(/(?:[^\s"']+|"[^"]*"|'[^']*')+/g)].map(([word]) => word.replace(/["']/g, ""));
}

/* A word as a condition, or null where it is none. */
function conditionOf(word) {
  const found = word.match(/^([\w.]+)(<=|>=|!=|==|=|<|>)(.*)$/s);
  if (!found) return null;
  const [, given, sign, typed] = found, field = given === "estimator.name" ? "estimator" : given;
  return { field, sign: sign === "==" ? "=" : sign, text: field === "estimator" ? typed.replaceAll("-", "_") : typed };
}

/* As Python reads a number; null where it is none. */
function numeric(value) {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return Number(value);
  if (typeof value !== "string" || !value.trim()) return null;
  const spelled = { inf: Infinity, "+inf": Infinity, "-inf": -Infinity }[value.trim().toLowerCase()];
  if (spelled !== undefined) return spelled;
  return /^[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value.trim()) ? Number(value.trim().replaceAll("_", "")) : null;
}

/* As Python writes what is no number: lists and truths. */
function written(value) {
  if (Array.isArray(value)) return `[${value.map((one) => (typeof one === "string" ? `'${one}'` : written(one))).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  return value === null || value === undefined ? "None" : String(value);
}

/* A schedule or a rule in one spelling: 2:.1:linear and 2.0:0.1:linear:1.0 are one, as are a rule's constants in any order. */
function spelled(text) {
  const [first, ...rest] = text.split(":"), plain = (part) => String(numeric(part) ?? part);
  if (numeric(first) === null) {
    return [first, ...rest.map((part) => part.replace(/=(.*)$/s, (_, number) => `=${plain(number)}`)).sort()].join(":");
  }
  if (rest.length === 3 && numeric(rest[2]) === 1) rest.pop();
  return [first, ...rest].map(plain).join(":");
}

/* The parts of a list in one spelling: 64,64 and [64, 64] are one. */
function parts(text) {
  const inside = text.trim().replace(/^[[(]+|[\])]+$/g, "");
  return inside.split(",").map((part) => part.trim().replace(/^['"]|['"]$/g, "")).map((part) => String(numeric(part) ?? part)).join(",");
}

function equal(value, text) {
  if (typeof value === "boolean" || value === null || value === undefined) return written(value).toLowerCase() === text.toLowerCase();
  /* A text is a text, whatever it looks like: the ids 02e8164723156083 and 12e2346552973723 would both be infinite. */
  const [a, b] = [typeof value === "string" ? null : numeric(value), numeric(text)];
  if (Array.isArray(value)) return parts(written(value)) === parts(text);
  if (a !== null && b !== null) return a === b;
  return written(value) === text || (typeof value === "string" && value.includes(":") && spelled(value) === spelled(text));
}

function holds({ sign, text }, value) {
  if (sign === "=" || sign === "!=") return equal(value, text) === (sign === "=");
  const [a, b] = [["number", "boolean"].includes(typeof value) ? numeric(value) : null, numeric(text)];
  if (a === null || b === null) return false;
  return { "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b }[sign];
}

/* A field of a run by its dotted name, one of its estimator also by its own ("tau_f"); undefined where it has none. One
   that is called like something else of a run is config.status. */
function fieldOf(i, given) {
  const { runs, settings } = DATA, { config } = settings[runs.setting[i]];
  if (given === "status" || given === "id" || given === "seed") return runs[given][i];
  if (given === "seeds") return runs.seed[i] >= DATA.fresh ? "fresh" : "search";
  const name = given.replace(/^config\./, "");
  if (name === "estimator") return config.estimator.name;
  const known = (where, key) => where !== null && typeof where === "object" && !Array.isArray(where) && Object.hasOwn(where, key);
  /* A key may have dots of its own: that of a parameter of somebody's own objective. */
  const inside = (value, key) => {
    if (known(value, key)) return value[key];
    const heads = [...key.matchAll(/\./g)].map(({ index }) => index).filter((dot) => known(value, key.slice(0, dot)));
    return heads.map((dot) => inside(value[key.slice(0, dot)], key.slice(dot + 1))).find((found) => found !== undefined);
  };
  return !known(config, name) && name !== "name" && known(config.estimator, name) ? config.estimator[name] : inside(config, name);
}

const TAKEN = ["id", "run", "status", "seeds", "plan", "schedule", "note", "lowest_validation_loss"];
/* A config's fields but task and estimator, by their dotted names: the parameters of somebody's own objective lie inside
   one of them. Those that are called like something else of a run: config.status. */
function flat({ task, estimator, ...fields }) {
  const entries = (value, before) => Object.entries(value).flatMap(([name, one]) =>
    (one !== null && typeof one === "object" && !Array.isArray(one) ? entries(one, `${before}${name}.`) : [[!before && TAKEN.includes(name) ? `config.${name}` : before + name, one]]));
  return Object.fromEntries(entries(fields, ""));
}

/* A number, or what may stand in the place of one: a schedule, a rule, a word of some option, none. */
function couldBeNumber(text) {
  return numeric(text) !== null || text.includes(":") || ["none", ...DATA.words].includes(text.toLowerCase());
}

/* The words of a text: what must be found somewhere, the conditions, and what is wrong with them. */
function query(text) {
  const found = { words: [], conditions: [], wrong: "" };
  for (const word of wordsOf(text)) {
    const condition = conditionOf(word);
    if (!condition) { found.words.push(word.toLowerCase()); continue; }
    found.conditions.push(condition);
    const known = DATA.runs.id.map((_, i) => fieldOf(i, condition.field)).filter((value) => value !== undefined);
    const values = known.filter((value) => value !== null);
    if (/^[=<>]/.test(condition.text)) found.wrong = `a condition has one of the signs <= >= != == = < >, got ${word}`;
    else if (!["=", "!="].includes(condition.sign)) {
      if (numeric(condition.text) === null) found.wrong = `sizes are compared with a number, got ${word}`;
    } else if (values.length && condition.text.toLowerCase() !== "none" && !values.some((value) => equal(value, condition.text))) {
      const course = (value) => typeof value === "string" && condition.field !== "id" && couldBeNumber(value);
      const numbers = values.some((value) => typeof value === "number" || course(value));
      const texts = values.some((value) => typeof value !== "number" && !course(value));
      const list = values.some(Array.isArray) && parts(condition.text).split(",").every((part) => numeric(part) !== null);
      const truth = values.some((value) => typeof value === "boolean") && ["true", "false"].includes(condition.text.toLowerCase());
      const ends = { status: ["done", "diverged", "failed", "stopped"], seeds: ["search", "fresh"] }[condition.field] ?? [];
      const typed = (numbers && couldBeNumber(condition.text)) || list || truth || ends.includes(condition.text);
      if (!typed && !texts) found.wrong = `${condition.field} is a number${values.some(course) ? ", a schedule or a rule" : ""} in every run, got ${word}`;
      else if (!typed && condition.sign === "!=") found.wrong = `every run would fit ${word}, since none has this value`;
    }
    if (DATA.runs.id.length && !known.length) found.wrong = `no run has the field ${condition.field}`;
  }
  return found;
}
