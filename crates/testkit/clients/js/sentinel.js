// Writes numbered keys to the primary that Sentinels name, through ioredis, across a failover.
// sentinel.js PREFIX SENTINEL-PORT...: as ../py/sentinel.py.
const Redis = require('ioredis');

const [prefix, ...ports] = process.argv.slice(2);
const sentinels = ports.map((port) => ({ host: '127.0.0.1', port: Number(port) }));
const options = { sentinels, name: 'mymaster', db: 1, commandTimeout: 1000, maxRetriesPerRequest: 0, sentinelRetryStrategy: () => 50, retryStrategy: () => 50 };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function connected(more) {
  const redis = new Redis({ ...options, ...more });
  // Each failed attempt is one; the calls say what it means for them.
  redis.on('error', () => {});
  return redis;
}

async function lastOfAReplica(key, wanted) {
  const replica = connected({ role: 'slave' });
  for (;;) {
    const value = await replica.get(key).catch(() => null);
    if (value === wanted) return value;
    await pause(50);
  }
}

async function main() {
  const primary = connected({});
  let number = 0;
  let fails = false;
  for (;;) {
    try {
      await primary.set(`${prefix}:${number}`, number);
      console.log(number);
      fails = false;
      if (await primary.exists(`${prefix}:end`)) {
        console.log('read', await lastOfAReplica(`${prefix}:${number}`, String(number)));
        process.exit(0);
      }
      number += 1;
    } catch (error) {
      if (!fails) console.log('lost');
      fails = true;
    }
    await pause(10);
  }
}

main();
