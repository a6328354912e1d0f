// BullMQ at work on the server at port argv[2]: every kind of job that it has, on several workers. Prints what came of them,
// in an order of its own, so that two servers can be compared line by line. Nothing here waits by the clock: what has to
// be waited for is an event, or a state that is asked for until it is there.
'use strict';

const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]), maxRetriesPerRequest: null };
const PATIENCE_MS = 20000;
const closing = [];

function made(thing) {
  thing.on('error', (error) => die(error));
  closing.push(thing);
  return thing;
}

function die(error) {
  console.error(error);
  process.exit(1);
}

async function until(what, so) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    if (await so()) return;
    if (Date.now() > end) die(new Error('in vain: ' + what));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function say(what, value) {
  console.log(what + ': ' + JSON.stringify(value));
}

const sorted = (list) => [...list].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

async function counts(queue) {
  const { active, completed, delayed, failed, paused, prioritized, waiting } = await queue.getJobCounts();
  return { active, completed, delayed, failed, paused, prioritized, waiting };
}

// Many jobs, several workers: each job is done once.
async function many() {
  const queue = made(new Queue('many', { connection }));
  const done = [];
  const work = async (job) => { done.push(job.data.n); return job.data.n * 2; };
  await queue.addBulk(Array.from({ length: 1000 }, (_, n) => ({ name: 'job', data: { n } })));
  say('many added', await counts(queue));
  for (let n = 0; n < 3; n++) made(new Worker('many', work, { connection, concurrency: 10 }));
  await until('many', async () => (await queue.getCompletedCount()) === 1000);
  say('many done', [done.length, new Set(done).size, done.reduce((sum, n) => sum + n, 0)]);
  const jobs = await queue.getCompleted(0, -1);
  say('many results', jobs.every((job) => job.returnvalue === job.data.n * 2));
  say('many counts', await counts(queue));
}

// Failing, trying again with a pause, progress, events.
async function retries() {
  const queue = made(new Queue('retries', { connection }));
  const events = made(new QueueEvents('retries', { connection }));
  await events.waitUntilReady();
  const progress = [];
  events.on('progress', ({ data }) => progress.push(data));
  const attempts = new Map();
  made(new Worker('retries', async (job) => {
    attempts.set(job.name, (attempts.get(job.name) || 0) + 1);
    await job.updateProgress(attempts.get(job.name) * 10);
    await job.log('attempt ' + attempts.get(job.name));
    if (attempts.get(job.name) <= job.data.failures) throw new Error('not yet');
    return 'at last';
  }, { connection }));
  const options = { attempts: 4, backoff: { type: 'exponential', delay: 20 } };
  const lucky = await queue.add('lucky', { failures: 2 }, options);
  say('retries lucky', await lucky.waitUntilFinished(events, PATIENCE_MS));
  const unlucky = await queue.add('unlucky', { failures: 9 }, options);
  say('retries unlucky', await unlucky.waitUntilFinished(events, PATIENCE_MS).catch((error) => error.message));
  const [failed] = await queue.getFailed();
  say('retries failed', [failed.name, failed.attemptsMade, failed.failedReason, failed.stacktrace.length]);
  say('retries logs', (await queue.getJobLogs(unlucky.id)).logs);
  await until('progress', () => progress.length === 7);
  say('retries progress', progress);
  await failed.retry();
  await until('the last attempt', async () => attempts.get('unlucky') === 5 && (await queue.getFailedCount()) === 1);
  await queue.obliterate({ force: true });
  say('retries counts', await counts(queue));
}

// Order: by priority, first and last in first out, later ones, a queue that is paused.
async function order() {
  const queue = made(new Queue('order', { connection }));
  await queue.pause();
  for (const [name, options] of [
    ['c', { priority: 5 }], ['d', { priority: 9 }], ['b', {}], ['a', { lifo: true }], ['e', { delay: 300 }],
  ]) await queue.add(name, {}, options);
  await queue.add('twice', {}, { jobId: 'same', priority: 8 });
  await queue.add('again', {}, { jobId: 'same', priority: 8 });
  say('order paused', [await queue.isPaused(), await counts(queue)]);
  const done = [];
  made(new Worker('order', async (job) => { done.push(job.name); }, { connection, concurrency: 1 }));
  await queue.resume();
  await until('order', () => done.length === 6);
  say('order', done);
  const removed = await queue.add('removed', {}, { delay: 100000 });
  await removed.remove();
  const promoted = await queue.add('promoted', {}, { delay: 100000 });
  await promoted.promote();
  await until('promoted', () => done.length === 7);
  say('order promoted', done[6]);
}

// Parents that wait for their children.
async function flows() {
  const flow = made(new FlowProducer({ connection }));
  const parents = made(new QueueEvents('parents', { connection }));
  await parents.waitUntilReady();
  made(new Worker('children', async (job) => job.data.n, { connection, concurrency: 4 }));
  made(new Worker('parents', async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, n) => sum + n, 0);
  }, { connection }));
  const tree = await flow.add({
    name: 'sum',
    queueName: 'parents',
    children: [
      ...Array.from({ length: 20 }, (_, n) => ({ name: 'leaf', queueName: 'children', data: { n } })),
      { name: 'inner', queueName: 'parents', children: [{ name: 'leaf', queueName: 'children', data: { n: 1000 } }] },
    ],
  });
  say('flows', await tree.job.waitUntilFinished(parents, PATIENCE_MS));
  say('flows state', [await tree.job.getState(), (await tree.job.getDependenciesCount()).processed]);
}

// So many in a span of time, and jobs that come back.
async function schedules() {
  const limited = made(new Queue('limited', { connection }));
  const done = [];
  made(new Worker('limited', async (job) => { done.push(job.data.n); },
    { connection, limiter: { max: 5, duration: 100 } }));
  await limited.addBulk(Array.from({ length: 20 }, (_, n) => ({ name: 'job', data: { n } })));
  await until('limited', () => done.length === 20);
  say('limited', sorted(done).length);
  const queue = made(new Queue('scheduled', { connection }));
  let times = 0;
  made(new Worker('scheduled', async () => { times += 1; }, { connection }));
  await queue.upsertJobScheduler('tick', { every: 50, limit: 3 }, { name: 'tick', data: {} });
  await until('scheduled', () => times === 3);
  say('scheduled', times);
  say('schedulers', (await queue.getJobSchedulers()).map((scheduler) => scheduler.key));
  await queue.removeJobScheduler('tick');
  say('schedulers left', (await queue.getJobSchedulers()).length);
}

// A worker that went away in the middle: another one takes the job over.
async function stalled() {
  const queue = made(new Queue('stalled', { connection }));
  const gone = new Worker('stalled', null, { connection, lockDuration: 100 });
  gone.on('error', (error) => die(error));
  await queue.add('job', { n: 1 });
  const job = await gone.getNextJob('token');
  say('stalled taken', [job.name, await counts(queue)]);
  await gone.close(true);
  const done = [];
  made(new Worker('stalled', async (taken) => { done.push(taken.name); },
    { connection, lockDuration: 1000, stalledInterval: 100 }));
  await until('stalled', () => done.length === 1);
  say('stalled done', done);
}

// What is old goes.
async function cleaning() {
  const queue = made(new Queue('cleaning', { connection }));
  made(new Worker('cleaning', async () => 'x', { connection, removeOnComplete: { count: 10 } }));
  await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'job', data: {} })));
  await until('all are done', async () => {
    const { waiting, active, completed } = await counts(queue);
    return waiting + active === 0 && completed <= 10;
  });
  say('cleaning kept', await queue.getCompletedCount());
  say('cleaning removed', (await queue.clean(0, 100, 'completed')).length);
  await queue.obliterate();
  const client = await queue.client;
  say('cleaning left', (await client.keys('bull:cleaning:*')).length);
}

async function run() {
  for (const part of [many, retries, order, flows, schedules, stalled, cleaning]) await part();
  await Promise.all(closing.map((thing) => thing.close()));
}

run().then(() => process.exit(0), die);
