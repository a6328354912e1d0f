// Opens a status page in a headless browser, at each of these widths, light and dark: node page.js BROWSER URL FOLDER NAME WIDTH...
// Prints each fault as a line: words on the console, requests to elsewhere, faults that axe finds, charts without marks,
// a page wider than its window, markup that came from data. Pictures are left in FOLDER.
'use strict';
const fs = require('fs');
const path = require('path');
const puppeteer = require('puppeteer-core');

const [program, url, folder, name, ...widths] = process.argv.slice(2);
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const faults = new Set();

// Runs in the page: returns its faults and the number of its charts.
function survey() {
  const found = [];
  const wider = document.documentElement.scrollWidth - innerWidth;
  if (wider > 0) found.push(`wider than the window by ${wider} px`);
  const charts = [...document.querySelectorAll('figure svg')];
  charts.forEach((svg) => {
    const marks = [...svg.querySelectorAll('polyline, path, rect, circle')];
    const drawn = marks.filter((mark) => /^[cf][0-9]/.test(mark.getAttribute('class') || ''));
    const isEmpty = svg.textContent.includes('no points');
    if (drawn.length === 0 && !isEmpty) found.push(`no marks in "${svg.closest('figure').textContent.slice(0, 40)}"`);
  });
  const foreign = document.querySelectorAll('main script, main img, main b, main iframe').length;
  if (foreign > 0) found.push(`${foreign} elements that no page of ours has`);
  return { found, charts: charts.length };
}

async function look(browser, width, scheme) {
  const page = await browser.newPage();
  const fault = (text) => faults.add(`${name}, ${width} px, ${scheme}: ${text}`);
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  page.on('console', (message) => fault(`console: ${message.text()}`));
  page.on('pageerror', (error) => fault(`error: ${error.message}`));
  page.on('dialog', (dialog) => { fault('a dialog'); dialog.dismiss(); });
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) fault(`asks for ${request.url()}`);
  });
  let updates = 0;
  page.on('requestfinished', (request) => { if (request.url().endsWith('?part')) updates += 1; });
  await page.goto(url);
  // The script of the page has replaced its contents once.
  const deadline = Date.now() + 10000;
  while (updates === 0 && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50));
  if (updates === 0) fault('never updated');
  await page.screenshot({ path: path.join(folder, `${name}-${width}-${scheme}.png`), fullPage: true });
  const { found, charts } = await page.evaluate(survey);
  found.forEach(fault);
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => (await globalThis.axe.run()).violations
    .map((one) => `${one.help}: ${one.nodes[0].html.slice(0, 120)}`));
  violations.forEach((text) => fault(`axe: ${text}`));
  await page.close();
  return charts;
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: program, args: ['--no-sandbox'] });
  let charts = 0;
  try {
    for (const scheme of ['light', 'dark']) {
      for (const width of widths) charts = await look(browser, Number(width), scheme);
    }
  } finally {
    await browser.close();
  }
  faults.forEach((text) => console.log(text));
  if (faults.size === 0) console.log(`charts ${charts}`);
})().catch((error) => {
  console.log(`${name}: ${error.message}`);
});
