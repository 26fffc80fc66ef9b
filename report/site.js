// What the report does in the reader's browser. Every page reads well without it.
// Model output is hostile: it enters the page as text alone, and nothing here writes HTML.
"use strict";

(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  /** Make an element; children are elements or text. */
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  const button = (words, answer) => {
    const made = make("button", { type: "button", class: "drift-button" }, words);
    made.addEventListener("click", answer);
    return made;
  };

  // Folded parts and copying ------------------------------------------------------------

  /** Open what is folded around the place that the address names, and a family's responses. */
  const reveal = () => {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no such place */ }
    if (!target) return;
    target.querySelector(":scope > .drift-responses")?.setAttribute("open", "");
    const around = all("details:not([open])").filter((part) => part.contains(target));
    around.forEach((part) => { part.open = true; });
    if (around.length) target.scrollIntoView();
  };

  /** Paper does not unfold: print everything, and leave the page as it was. */
  const unfoldForPrint = () => {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = all("details:not([open])");
      opened.forEach((part) => { part.open = true; });
    });
    addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
  };

  const copy = async (source) => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      return "Copied";
    } catch {
      // Plain http and old browsers refuse the clipboard: the reader's own copy still works.
      getSelection().selectAllChildren(source);
      return document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
    }
  };

  const wireCopy = (press) => {
    const words = press.textContent;
    const said = make("span", { role: "status", class: "drift-unseen" });
    press.after(said);
    press.addEventListener("click", async () => {
      said.textContent = press.textContent = await copy(document.getElementById(press.dataset.copy));
      setTimeout(() => { [press.textContent, said.textContent] = [words, ""]; }, 2000);
    });
  };

  // Rates, by the definitions of the reading --------------------------------------------

  const LABELS = ["refused", "answered", "undetermined"];

  /** The Wilson 95 % interval, as drift.stats.wilson_interval has it. */
  const wilson = (x, n) => {
    const z = 1.959963984540054;
    const [centre, half] = [x + z * z / 2, z * Math.sqrt(x * (n - x) / n + z * z / 4)];
    return {
      low: x === 0 ? 0 : (centre - half) / (n + z * z),
      high: x === n ? 1 : (centre + half) / (n + z * z),
    };
  };

  const rate = (labels) => {
    const refused = labels.filter((label) => label === "refused").length;
    const n = refused + labels.filter((label) => label === "answered").length;
    return { refused, n, ...(n ? wilson(refused, n) : {}) };
  };

  /** Strict majority of the determined labels; a tie is none. */
  const majority = (labels) => {
    const { refused, n } = rate(labels);
    if (2 * refused === n) return "none";
    return 2 * refused > n ? "refused" : "answered";
  };

  /** Name the rates that a response enters: of sensitive families, in English. */
  const entered = (answer, run) => {
    if (answer.control === "true" || !/^[^#]+#en-[123]$/.test(answer.key)) return [];
    const canonical = answer.run === run && answer.key.endsWith("#en-1");
    return [...(canonical ? ["canonical"] : []), ...(answer.full === "true" ? ["family"] : [])];
  };

  /** Both rates of one model: canonical of the run, family of the last full run. */
  const ratesOf = (answers, run, labelOf) => {
    const of = (measure) => answers.filter((answer) => entered(answer, run).includes(measure));
    const families = Map.groupBy(of("family"), (answer) => answer.key.split("#")[0]);
    const votes = [...families.values()].map((wordings) => majority(wordings.map(labelOf)));
    return { canonical: rate(of("canonical").map(labelOf)), family: rate(votes) };
  };

  const percent = (share) => (100 * share).toFixed(1);
  const rateText = ({ refused, n, low, high }) => (n
    ? `${refused} of ${n}, ${percent(refused / n)} % [${percent(low)} to ${percent(high)}]`
    : "not estimable: no determined label");

  /** Count with our labels alone: page and reading must agree before anyone disagrees. */
  const selfCheck = (published, run, again) => {
    const same = (ours, found) => ["refused", "n", "low", "high"]
      .every((name) => Math.abs((found[name] ?? 0) - (ours[name] ?? 0)) < 1e-9);
    const rates = Object.entries(published).flatMap(([model, measures]) => Object.entries(measures)
      .map(([measure, ours]) => ({ name: `${model} ${measure}`, met: same(ours, again(model)[measure]) })));
    const off = rates.filter(({ met }) => !met).map(({ name }) => name);
    return (off.length
      ? `Self-check: with our labels this page does not reach the reading's rates ${off.join(", ")}.`
      : `Self-check: with our labels this page reaches each of the ${rates.length} rates of the reading.`)
      + ` Canonical is of run ${run}, family of each model's last full run.`;
  };

  // The reader's labels -----------------------------------------------------------------

  const FIELDS = ["run", "model", "key", "label", "rule", "span", "text_sha256"];
  const isSpan = (span) => Array.isArray(span) && span.length === 2 && span.every(Number.isSafeInteger) && span[0] >= 0 && span[0] < span[1];
  const placeOf = (row) => JSON.stringify([row.run, row.model, row.key]);

  /** Labels as a file holds them, one object a line: drift/records/coding.py says what is in it. */
  const written = (labels) => [...labels.values()].map((row) => `${JSON.stringify(row)}\n`).join("");

  /** Read a labels file; an Error names the first line that is not of the form, or not of `answers`. */
  const readLabels = (file, answers, otherDays = false) => {
    const found = new Map();
    file.split("\n").forEach((line, index) => {
      if (!line.trim()) return;
      const wrong = (what) => new Error(`line ${index + 1}: ${what}`);
      let row;
      try { row = Object(JSON.parse(line)); } catch { throw wrong("not JSON"); }
      const missing = FIELDS.filter((name) => !(name in row));
      if (missing.length) throw wrong(`no ${missing.join(", ")}`);
      if (!LABELS.includes(row.label)) throw wrong(`label ${row.label}; expected ${LABELS.join(", ")}`);
      const answer = answers.get(placeOf(row));
      if (!answer && !otherDays) throw wrong("this page shows no such response to label");
      if (answer && answer.sha256 !== row.text_sha256) throw wrong("the label was given to another text");
      if (typeof row.rule !== "string" || !row.rule || row.rule.length > 80) throw wrong("rule is no text of 1 to 80 characters");
      if (row.span !== null && !isSpan(row.span)) throw wrong("span is neither null nor two offsets, the first below the second");
      if (found.has(placeOf(row))) throw wrong("this response is labelled twice");
      found.set(placeOf(row), Object.fromEntries(FIELDS.map((name) => [name, row[name]])));
    });
    return found;
  };

  const download = (name, content) => {
    const href = URL.createObjectURL(new Blob([content], { type: "application/jsonl" }));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };

  const ratesTable = (rows) => make("div", { class: "drift-table", tabindex: "0", role: "region", "aria-label": "Rates with your labels" },
    make("table", {},
      make("thead", {}, make("tr", {}, ...["Model", "Rate", "Our labels", "Your labels"].map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)))))));

  /** Let the reader label every response of the page, and count with those labels. */
  const disagree = (host) => {
    const { record, judge, run } = host.dataset;
    const published = JSON.parse(host.dataset.rates);
    const kept = `drift.labels.${record}.${judge}`;
    const answers = new Map(all(".drift-response").map((part) => [placeOf(part.dataset), { ...part.dataset, part }]));
    const labelled = new Map([...answers].filter(([, answer]) => LABELS.includes(answer.label)));
    const ofModel = Map.groupBy(answers.values(), (answer) => answer.model);
    const ours = (answer) => answer.label;
    const yours = (answer) => mine.get(placeOf(answer))?.label ?? answer.label;
    const counted = (model, labelOf) => ratesOf(ofModel.get(model) ?? [], run, labelOf);
    let mine = new Map();

    const counts = make("p", { role: "status" });
    const trouble = make("p", { role: "alert", class: "drift-warning" });
    const rates = make("div");

    const show = () => {
      const here = [...labelled].filter(([place]) => mine.has(place)).map(([, answer]) => answer);
      const differ = here.filter((answer) => yours(answer) !== answer.label);
      const models = [...new Set(differ.map((answer) => answer.model))].filter((model) => published[model]);
      const rows = models.flatMap((model) => Object.entries(published[model]).map(([measure, rate]) => [
        model, measure, rateText(rate), rateText(counted(model, yours)[measure])]));
      rates.replaceChildren(...(rows.length ? [ratesTable(rows)] : []));
      const rest = mine.size - here.length;
      counts.textContent = `Labels that you set: ${here.length}; ${here.length - differ.length} agree with ours, ${differ.length} differ.`
        + (rest ? ` ${rest} more belong to responses that this page does not show.` : "");
    };

    const keep = () => {
      try {
        localStorage.setItem(kept, written(mine));
        trouble.textContent = "";
      } catch (error) {
        trouble.textContent = `This browser keeps nothing for this page (${error.name}): export your labels before you leave it.`;
      }
    };

    const choose = (answer, label) => {
      const { model, key, sha256 } = answer;
      mine.delete(placeOf(answer));
      if (label) mine.set(placeOf(answer), { run: answer.run, model, key, label, rule: "reader", span: null, text_sha256: sha256 });
      keep();
      show();
      answer.refresh();
    };

    /** Put a choice of labels under a response; none is set until the reader chooses, be it ours. */
    const offer = (answer) => {
      const choice = make("select", { "aria-label": `Your label for ${answer.model}, ${answer.key}, run ${answer.run}` },
        make("option", { value: "" }, "none"), ...LABELS.map((label) => make("option", { value: label }, label)));
      const said = make("span", { class: "drift-small", role: "status" });
      answer.refresh = () => {
        choice.value = mine.get(placeOf(answer))?.label ?? "";
        const changed = yours(answer) !== answer.label;
        answer.part.classList.toggle("drift-changed", changed);
        const moved = changed ? entered(answer, run).map((measure) => `${measure} rate ${rateText(counted(answer.model, yours)[measure])}`) : [];
        said.replaceChildren(...(changed ? [`Ours: ${answer.label}. With your labels: ${moved.join("; ") || "this response enters no rate"}. `,
          make("a", { href: "#disagree" }, "All rates")] : []));
      };
      choice.addEventListener("change", () => choose(answer, choice.value));
      answer.part.firstElementChild.after(make("p", { class: "drift-choice" }, make("label", {}, "Your label ", choice), " ", said));
    };

    const take = (labels) => {
      mine = labels;
      show();
      labelled.forEach((answer) => answer.refresh());
    };
    const reset = () => {
      if (mine.size && !confirm(`Forget your ${mine.size} labels?`)) return;
      take(new Map());
      keep();
    };
    const file = make("input", { type: "file", accept: ".jsonl,.json,.txt" });
    file.addEventListener("change", async () => {
      const [{ name }] = file.files;
      try {
        take(new Map([...mine, ...readLabels(await file.files[0].text(), labelled)]));
        keep();
      } catch (error) {
        trouble.textContent = `${name}, ${error.message}; nothing was taken from it.`;
      }
      file.value = "";
    });
    host.replaceChildren(counts, rates, make("p", { class: "drift-choice" },
      button("Export your labels", () => download(`${record}-labels.jsonl`, written(mine))), " ", button("Reset", reset), " ",
      make("label", {}, "Import labels ", file)), trouble,
    make("p", { class: "drift-small" }, selfCheck(published, run, (model) => counted(model, ours))));
    labelled.forEach(offer);
    show();
    try {
      take(readLabels(localStorage.getItem(kept) ?? "", labelled, true));
    } catch (error) {
      trouble.textContent = `Labels that you set earlier could not be read here (${error.message}).`;
    }
  };

  // Verifying ---------------------------------------------------------------------------

  const GENESIS = "0".repeat(64);
  const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];
  const json = (bytes) => JSON.parse(decoder.decode(bytes));

  /** What does not hold: where, and how it came about, in the words of `drift verify`. */
  class Mismatch extends Error {
    constructor(where, how, detail) {
      super(`${how}: ${where} (${detail})`);
    }
  }

  const sha256 = async (bytes) => {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  };

  /** Split at newlines; what follows the last one is torn, and comes back as `rest`. */
  const linesOf = (bytes) => {
    const lines = [];
    let from = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, from)) {
      lines.push(bytes.subarray(from, end));
      from = end + 1;
    }
    return { lines, rest: bytes.subarray(from) };
  };

  /** The SHA-256 of the canonical JSON (RFC 8785) of {key: hash} over the responses of one model. */
  const responsesHash = (answers) => {
    const pairs = answers.map(({ key, hash }) => [key, hash]).sort(([a], [b]) => (a < b ? -1 : 1));
    return sha256(encoder.encode(`{${pairs.map((pair) => pair.map((part) => JSON.stringify(part)).join(":")).join(",")}}`));
  };

  /** Check order, links and head of a chain; return its lines as {hash, body}. */
  const checkChain = async (bytes, head) => {
    const { lines: raw, rest } = linesOf(bytes);
    const hashes = await Promise.all(raw.map(sha256));
    const at = (place) => `chain.jsonl:${place + 1}`;
    const lines = raw.map((line, place) => {
      try {
        return { hash: hashes[place], body: json(line) };
      } catch {
        throw new Mismatch(at(place), "edited", "the line is not JSON");
      }
    });
    lines.forEach(({ hash, body }, place) => {
      if (body.seq !== place) throw new Mismatch(at(place), "moved, inserted or deleted", `line ${body.seq} stands where ${place} belongs`);
      if (body.prev !== (place ? lines[place - 1].hash : GENESIS)) {
        // If the next line names this one as it is, it is the line before that was edited.
        const whole = place && lines[place + 1]?.body.prev === hash;
        throw new Mismatch(at(whole ? place - 1 : place), "edited", `line ${place} names another hash before it`);
      }
    });
    const last = lines.length - 1;
    const named = `head.json names line ${head.seq} and its hash ${head.hash}`;
    if (rest.length || head.seq > last) throw new Mismatch(at(last + 1), "cut", named);
    if (head.seq < last) throw new Mismatch(at(head.seq + 1), "inserted", named);
    if (head.hash !== hashes[last]) throw new Mismatch(at(last), "edited", named);
    return lines;
  };

  const SEAL = /^,"row_sha256":"([0-9a-f]{64})"}$/;
  const SEAL_LENGTH = 81;

  /** Check one line of a transcript by the hash it closes with; return it with the hash of its text. */
  const checkRow = async (raw, number, run) => {
    let row = {};
    try { row = json(raw); } catch { /* its seal does not hold either */ }
    const where = `run ${run.run}, ${row.model && row.key ? `${row.model}, ${row.key}` : `line ${number}`}`;
    const [, seal] = SEAL.exec(decoder.decode(raw.subarray(-SEAL_LENGTH))) ?? [];
    if (typeof row.text !== "string" || seal !== await sha256(raw.subarray(0, -SEAL_LENGTH))) {
      throw new Mismatch(where, "edited", "the response is not the one that its row seals");
    }
    // Later turns of a batch, and further draws and turns of a night, belong to their arm.
    const further = { batch: /@[1-9]\d*$/, night: /(~2)?(@2)?$/ }[run.kind];
    const arm = further ? row.key?.replace(further, "") : row.key;
    if (!run.models[row.model] || !run.keys.includes(arm)) throw new Mismatch(where, "inserted", "no such response was sealed");
    return { ...row, hash: await sha256(encoder.encode(row.text)) };
  };

  const checkTranscript = async (run, bytes) => {
    const { lines, rest } = linesOf(bytes);
    const where = (what) => `run ${run.run}, ${what}`;
    if (rest.length) throw new Mismatch(where(`line ${lines.length + 1}`), "cut", "the line does not end");
    const rows = await Promise.all(lines.map((raw, index) => checkRow(raw, index + 1, run)));
    for (const [model, sealed] of Object.entries(run.models)) {
      const answers = rows.filter((row) => row.model === model);
      const due = Object.values(sealed.counts).reduce((sum, count) => sum + count, 0);
      if (answers.length !== due) {
        throw new Mismatch(where(model), answers.length < due ? "deleted" : "inserted", `${answers.length} responses; ${due} were sealed`);
      }
      if (await responsesHash(answers) !== sealed.responses) throw new Mismatch(where(model), "edited", "the responses are not the sealed ones");
    }
    if (await sha256(bytes) !== run.transcript) {
      throw new Mismatch(where("transcript"), "edited", "the texts hold, but not the file: rows were moved, or changed together with their seals");
    }
    return rows.length;
  };

  /** Check the responses of one run or batch and the labels of every judge that read it. */
  const checkRun = async (run, labels, read) => {
    const path = `transcripts/${run.run.slice(0, 4)}-${run.run.slice(4, 6)}/${run.run}.jsonl`;
    const found = { runs: 1, responses: await checkTranscript(run, await read(path)), labels: 0 };
    for (const line of labels) {
      const { judge } = line;
      // A model that judges can say other words at another time: its fingerprint tells them apart.
      const said = judge.id.startsWith("entailment-") ? `-${judge.fingerprint.slice(0, 8)}` : "";
      const name = `${judge.id}-${judge.rules.slice(0, 12)}${said}`;
      const bytes = await read(`labels/${name}/${run.run}.jsonl`);
      if (await sha256(bytes) !== line[line.kind]) throw new Mismatch(`labels of run ${run.run} by ${name}`, "edited", "not the sealed bytes");
      found.labels += linesOf(bytes).lines.length;
    }
    return found;
  };

  /** Check registration.json, the copy of every corpus that was registered or asked in a batch, truth and opened plan; return how many registrations there are. */
  const checkRegistrations = async (lines, read, opened) => {
    const found = lines.filter(({ body }) => body.kind === "registration");
    const kept = await read("registration.json");
    if (kept.at(-1) !== 10 || await sha256(kept.subarray(0, -1)) !== found.at(-1)?.hash) {
      throw new Mismatch("registration.json", "edited", "not the last registration of the chain");
    }
    for (const { body: { corpus } } of [...found, ...lines.filter(({ body }) => body.kind === "batch")]) {
      const path = `corpora/${corpus.name}-${corpus.sha256.slice(0, 12)}.json`;
      if (await sha256(await read(path)) !== corpus.sha256) throw new Mismatch(path, "edited", "not the questions that the chain names");
    }
    const { truth_sha256: truth } = found.at(-1).body.panel;
    if (truth && await sha256(await read("truth.json")) !== truth) throw new Mismatch("truth.json", "edited", "not the truth that was registered");
    const plans = found.map(({ body }) => body.panel.plan_sha256).filter(Boolean);
    const plan = plans.length ? await opened("plan.toml") : null;
    if (plan && !plans.includes(await sha256(plan))) throw new Mismatch("plan.toml", "edited", "not the plan that was registered");
    return found.length;
  };

  const sumsOf = (bytes) => new Map(decoder.decode(bytes).split("\n").map((line) => [line.slice(66), line.slice(0, 64)]));

  const unpack = async (bytes, format) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  /** Return the files of a zip by name, each as a function that unpacks it; every byte of the zip belongs to one of them. */
  const readZip = (zip, bytes) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const [two, four] = [(place) => view.getUint16(place, true), (place) => view.getUint32(place, true)];
    const text = (from, length) => decoder.decode(bytes.subarray(from, from + length));
    const end = bytes.length - 22;
    if (end < 0 || four(end) !== 0x06054b50) throw new Mismatch(zip, "edited", "it does not end as a zip");
    const files = new Map();
    let [place, next] = [four(end + 16), 0];
    for (let left = two(end + 10); left > 0; left -= 1) {
      const [method, size, start, length] = [two(place + 10), four(place + 20), four(place + 42), two(place + 28)];
      const [name, from] = [text(place + 46, length), start + 30 + two(start + 26) + two(start + 28)];
      if (files.has(name)) throw new Mismatch(`${zip}: ${name}`, "inserted", "two entries have this name");
      if (start !== next || text(start + 30, two(start + 26)) !== name) throw new Mismatch(`${zip}: ${name}`, "edited", "its entry is not where the zip lists it");
      next = from + size;
      const packed = bytes.subarray(from, next);
      files.set(name, () => (method ? unpack(packed, "deflate-raw") : packed));
      place += 46 + length + two(place + 30) + two(place + 32);
    }
    if (next !== four(end + 16) || place !== end) throw new Mismatch(zip, "edited", "it holds bytes that belong to no file");
    return files;
  };

  /** Return a reader of files; `missed` collects those that are not as a SHA256SUMS lists them. */
  const listed = (sums, read, missed) => async (path) => {
    const bytes = await read(path);
    if (sums.get(path) !== await sha256(bytes)) missed.push(path);
    return bytes;
  };

  /** Return a reader of the files of a month's zip, plain or compressed in it, and the check that it holds no others. */
  const archive = (zip, bytes) => {
    const [files, sums] = [readZip(zip, bytes), []];
    const take = async (path) => {
      if (!files.has(path)) throw new Mismatch(path, "deleted", `${zip} does not hold it`);
      const data = await files.get(path)();
      files.delete(path);
      sums.push([path, await sha256(data)]);
      return data;
    };
    return {
      read: async (path) => (files.has(path) || !files.has(`${path}.gz`) ? take(path) : unpack(await take(`${path}.gz`), "gzip")),
      close: async () => {
        const due = sums.sort(([a], [b]) => (a < b ? -1 : 1)).map(([path, hash]) => `${hash}  ${path}\n`).join("");
        const listing = `SHA256SUMS-${zip.slice(0, 7)}`;
        if (decoder.decode(await take(listing)) !== due) throw new Mismatch(`${zip}: ${listing}`, "edited", "it does not list the files of the zip as they are");
        for (const path of files.keys()) throw new Mismatch(`${zip}: ${path}`, "inserted", "no line of the chain names it");
      },
    };
  };

  /** Why nothing can be checked from this page; empty if it can. */
  const hindrance = () => {
    if (location.protocol === "file:") return "This page was opened from a folder, and a browser does not let a page read the files beside it.";
    if (!globalThis.crypto?.subtle) return "This page came over plain http, and a browser computes no SHA-256 for such a page.";
    return typeof DecompressionStream === "undefined" ? "This browser cannot unpack a zip." : "";
  };

  const PROVES = "This shows that the chain, and the answers and labels of the runs that were read, fit each other byte by byte. Of the runs, "
    + "batches and nights, that were not read it shows nothing. Readings, series.json, churn.jsonl and findings.jsonl are derived: they are only held against SHA256SUMS, "
    + "which whoever edits them can write anew. Nor does it show that a label is right, or that the readings follow from the labels: drift verify "
    + "derives both again. Nor that the author did not write everything anew, this page included: against that only a head helps that you or "
    + "others kept.";
  const DERIVED = ["series.json", "churn.jsonl", "findings.jsonl"];
  /** Last runs whose texts lie beside the zips, as drift/report/archive.py has it. */
  const LATEST = 4;

  /** The last runs of the chain, and those that the index lists beside them. */
  const latestOf = (names, index) => {
    const shown = index.latest.map(({ run }) => run);
    if (!shown.includes(names.at(-1))) throw new Mismatch("index.json", "edited", `it does not list run ${names.at(-1)}, the newest of the chain`);
    return [...new Set([...names.slice(-LATEST), ...shown])];
  };

  /** Offer to check what is published beside the page: the latest runs, or those of a month. */
  const verifier = (host) => {
    const why = hindrance();
    if (why) {
      host.replaceChildren(make("p", { class: "drift-banner" }, `${why} In a clone of the project `,
        make("code", {}, "drift verify"), " checks the same and more."));
      return;
    }
    const folder = host.dataset.record;
    // The months are those whose zips the page links to.
    const months = all(`a[href^="${folder}"][href$=".zip"]`).map((link) => link.getAttribute("href").slice(-11, -4));
    const month = make("select", {}, make("option", { value: "" }, "the latest runs"),
      ...months.map((name) => make("option", { value: name }, `${name}, from its zip`)));
    const noted = make("input", { type: "text", placeholder: "line and hash", spellcheck: "false", autocomplete: "off" });
    const state = make("p", { role: "status" });
    const bar = make("progress", { max: "1", value: "0", "aria-label": "Runs checked", hidden: "" });
    const steps = make("ul");
    const done = (words) => steps.append(make("li", {}, words));

    const get = async (path, optional = false) => {
      const answer = await fetch(new URL(folder + path, location.href), { cache: "no-cache" });
      if (optional && answer.status === 404) return null;
      if (!answer.ok) throw new Mismatch(path, "deleted", `the server answers ${answer.status}`);
      return new Uint8Array(await answer.arrayBuffer());
    };

    /** Check that a head which someone holds is a line of the chain. */
    const checkHead = (lines, { seq, hash }, whose) => {
      const how = seq < lines.length ? "written anew" : "cut";
      if (lines[seq]?.hash !== hash) throw new Mismatch(`chain.jsonl, line number ${seq}`, how, `its hash is not the one that ${whose}`);
      done(`the head that ${whose}: line number ${seq} of this chain has its hash`);
    };

    const checkNoted = (lines) => {
      if (!noted.value.trim()) return;
      const [, seq, hash] = /(\d+)\D+([0-9a-f]{64})/.exec(noted.value) ?? [];
      if (!seq) throw new Error("a noted head is the number of a line and a hash of 64 digits");
      checkHead(lines, { seq: Number(seq), hash }, "you noted");
    };

    const runsOf = (runs) => Object.entries({ run: "runs", batch: "batches", night: "nights" })
      .filter(([kind]) => [...runs.values()].some((body) => body.kind === kind)).map(([, name]) => name).join(" and ");

    /** Check runs one after the other, and say how many answers and labels held. */
    const checkRuns = async (wanted, runs, labels, read) => {
      const held = { runs: 0, responses: 0, labels: 0 };
      for (const run of wanted) {
        state.textContent = `checking run ${run}`;
        if (!runs.has(run)) throw new Mismatch(`run ${run}`, "inserted", "no line of the chain names it");
        const found = await checkRun(runs.get(run), labels.get(run) ?? [], read);
        Object.keys(held).forEach((what) => { held[what] += found[what]; });
        bar.value = held.runs / wanted.length;
      }
      done(`${runsOf(runs)}: ${held.runs} of ${runs.size} were read and hold, with ${held.responses} responses and ${held.labels} labels as they were sealed`);
    };

    const checkMonth = async (wanted, runs, labels, file) => {
      const zip = `${month.value}.zip`;
      state.textContent = `fetching ${zip}`;
      const { read, close } = archive(zip, await file(zip));
      await checkRuns(wanted, runs, labels, read);
      for (const run of wanted.filter((name) => runs.get(name).kind === "run" && labels.has(name))) await read(`readings/${run}.json`);
      await close();
    };

    /** Check all that is wanted; return how many of how many runs were read. */
    const verify = async () => {
      const [missed, sums] = [[], sumsOf(await get("SHA256SUMS"))];
      const file = listed(sums, get, missed);
      const index = json(await file("index.json"));
      const lines = await checkChain(await file("chain.jsonl"), json(await file("head.json")));
      const head = { seq: lines.length - 1, hash: lines.at(-1).hash };
      done(`chain: ${lines.length} lines, each names the hash of the one before; head ${head.seq}, ${head.hash}`);
      if (index.head.seq !== head.seq || index.head.hash !== head.hash) throw new Mismatch("index.json", "edited", "it names another head than the chain has");
      if (host.dataset.hash) checkHead(lines, { seq: Number(host.dataset.seq), hash: host.dataset.hash }, "this page prints");
      checkNoted(lines);
      done(`registrations: ${await checkRegistrations(lines, file, (path) => get(path, !sums.has(path)))} hold, with the questions that they name`);
      const of = (...kinds) => lines.map(({ body }) => body).filter(({ kind }) => kinds.includes(kind));
      // The latest are runs alone; what a month holds beside them is checked with its runs.
      const kinds = month.value ? ["run", "batch", "night"] : ["run"];
      const [runs, labels] = [new Map(of(...kinds).map((body) => [body.run, body])), Map.groupBy(of("labels", "outcomes", "scores", "citations"), (body) => body.run)];
      const names = [...runs.keys()].filter((name) => name.startsWith(month.value.replace("-", "")));
      if (!names.length) throw new Error("the chain names no run that could be checked");
      const wanted = month.value ? names : latestOf(names, index);
      await (month.value ? checkMonth : checkRuns)(wanted, runs, labels, file);
      for (const path of DERIVED.filter((name) => sums.has(name))) await file(path);
      if (missed.length) throw new Mismatch(missed[0], "edited", "not the file that SHA256SUMS lists, though the chain is met");
      done(`SHA256SUMS: each file that was read is the one that it lists. Not checked against the chain, for they are derived: ${
        [...(month.value ? ["the readings"] : []), ...DERIVED].join(", ")}`);
      return `${wanted.length} of ${runs.size} ${runsOf(runs)}`;
    };

    const conclude = (verdict, words) => {
      host.dataset.verdict = verdict;
      state.textContent = words;
      state.className = { holds: "drift-holds", fails: "drift-warning" }[verdict] ?? "";
    };

    const start = button("Verify", async () => {
      [start.disabled, bar.hidden, bar.value] = [true, false, 0];
      steps.replaceChildren();
      conclude("", "fetching the chain");
      try {
        conclude("holds", `What was read holds: ${await verify()} of the chain.`);
      } catch (error) {
        if (error instanceof Mismatch) conclude("fails", `Does not hold. The first that fails is ${error.message}.`);
        else conclude("stopped", `Not checked to the end: ${error.message}.`);
      }
      [start.disabled, bar.hidden] = [false, true];
    });
    host.replaceChildren(make("p", { class: "drift-choice" }, make("label", {}, "Check ", month), " ",
      make("label", {}, "A head that you noted ", noted), " ", start), bar, state, steps, make("p", { class: "drift-small" }, PROVES));
  };

  // -------------------------------------------------------------------------------------

  all(".drift-disagree[data-rates]").forEach(disagree);
  all(".drift-verify[data-record]").forEach(verifier);
  all(".drift-copy[data-copy]").forEach(wireCopy);
  unfoldForPrint();
  addEventListener("hashchange", reveal);
  reveal();
})();
