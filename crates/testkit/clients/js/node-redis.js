// Runs the calls of calls.txt through node-redis, which speaks RESP3 as well, and subscribes.
// node-redis.js PORT PROTOCOL CALLS
const { createClient } = require('redis');
const { callsOf, text } = require('./calls.js');

async function main() {
  const [port, protocol, path] = process.argv.slice(2);
  const options = { socket: { host: '127.0.0.1', port: Number(port), reconnectStrategy: false }, RESP: Number(protocol) };
  const client = createClient(options);
  client.on('error', (error) => { throw error; });
  await client.connect();
  for (const { line, mark, words } of callsOf(path)) {
    const value = await client.sendCommand(words).catch((error) => error);
    console.log(line, '->', text(value, mark));
  }
  await client.flushAll();
  console.log('multi', JSON.stringify(await client.multi().set('p', '1').incr('p').hSet('h', { a: '1' }).hGetAll('h').zAdd('z', { score: 1.5, value: 'm' }).zRangeWithScores('z', 0, -1).exec()));
  const subscriber = client.duplicate();
  await subscriber.connect();
  const message = new Promise((resolve) => subscriber.subscribe('news', (text, channel) => resolve([channel, text])));
  while ((await client.publish('news', 'hello')) === 0);
  console.log('message', JSON.stringify(await message));
  subscriber.destroy();
  if (process.env.MONITOR !== 'no') await monitored(client);
  await client.close();
}

// What a monitor is shown, without times and addresses.
async function monitored(client) {
  const observer = client.duplicate();
  await observer.connect();
  const shown = new Promise((resolve) => {
    const lines = [];
    observer.monitor((line) => {
      lines.push(line.replace(/^[\d.]+ \[(\d+) (lua)?.*?\]/, '$1 $2'));
      if (lines.length === 7) resolve(lines);
    }).then(async () => {
      await client.set('m', 'a \0b\r\n');
      await client.eval("return redis.call('incr', KEYS[1])", { keys: ['mn'] });
      await client.multi().incr('mn').lPush('ml', 'x').exec();
    });
  });
  console.log('monitor', JSON.stringify(await shown));
  observer.destroy();
}

main().catch((error) => { console.error(error); process.exit(1); });
