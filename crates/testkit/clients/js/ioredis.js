// Runs the calls of calls.txt through ioredis, and what ioredis offers beyond single calls.
// ioredis.js PORT CALLS. ioredis speaks RESP2 only; RESP3 is node-redis.js's.
const Redis = require('ioredis');
const { callsOf, text } = require('./calls.js');

async function calls(redis, path) {
  for (const { line, mark, words } of callsOf(path)) {
    const value = await redis.call(...words).catch((error) => error);
    console.log(line, '->', text(value, mark));
  }
}

async function library(redis, port) {
  console.log('pipeline', JSON.stringify(await redis.pipeline().set('p', 1).incr('p').lpush('pl', 'a').hset('ph', 'a', 1).hgetall('ph').exec()));
  console.log('multi', JSON.stringify(await redis.multi().incr('p').lpush('p', 'x').get('p').exec().then((r) => r.map(([e, v]) => [e && e.message, v]))));
  redis.defineCommand('addtwo', { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], 2)" });
  console.log('script', await redis.addtwo('sc'), await redis.addtwo('sc'));
  await redis.mset(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`it:${i}`, i])));
  const seen = new Set();
  for await (const keys of redis.scanStream({ match: 'it:*', count: 50 })) keys.forEach((key) => seen.add(key));
  console.log('scanStream', seen.size);
  const watcher = new Redis(port, '127.0.0.1');
  await watcher.watch('w');
  await redis.set('w', 1);
  console.log('watch', JSON.stringify(await watcher.multi().set('w', 2).exec()));
  const big = Buffer.alloc(1200000, '\0\r\n');
  await redis.set('big', big);
  console.log('big', (await redis.getBuffer('big')).equals(big));
  const messages = [];
  const arrived = new Promise((resolve) => {
    watcher.on('message', (channel, message) => { messages.push([channel, message]); if (messages.length === 2) resolve(); });
    watcher.on('pmessage', (pattern, channel, message) => { messages.push([pattern, channel, message]); if (messages.length === 2) resolve(); });
  });
  console.log('subscribe', await watcher.subscribe('news'), await watcher.psubscribe('ne*'));
  console.log('publish', await redis.publish('news', 'hello'));
  await arrived;
  console.log('messages', JSON.stringify(messages));
  if (process.env.MONITOR !== 'no') await monitored(redis);
  console.log('unsubscribe', await watcher.unsubscribe('news'), await watcher.punsubscribe('ne*'));
  console.log('quit', await watcher.quit());
}

// What a monitor is shown, without times and addresses.
async function monitored(redis) {
  const monitor = await redis.monitor();
  const shown = new Promise((resolve) => {
    const lines = [];
    monitor.on('monitor', (_time, words, source, database) => {
      lines.push([database, source === 'lua', words]);
      if (lines.length === 7) resolve(lines);
    });
  });
  await redis.set('m', 'a \0b\r\n');
  await redis.eval("return redis.call('incr', KEYS[1])", 1, 'mn');
  await redis.multi().incr('mn').lpush('ml', 'x').exec();
  console.log('monitor', JSON.stringify(await shown));
  monitor.disconnect();
}

async function main() {
  const [port, path] = process.argv.slice(2);
  const redis = new Redis(Number(port), '127.0.0.1', { maxRetriesPerRequest: 1 });
  await calls(redis, path);
  await redis.flushall();
  await library(redis, Number(port));
  console.log('quit', await redis.quit());
}

main().catch((error) => { console.error(error); process.exit(1); });
