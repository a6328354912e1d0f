// Uses ioredis's Cluster against a cluster that PORT names, and says what it got.
//
// node cluster.js PORT
const Redis = require("ioredis");

async function main() {
  const port = Number(process.argv[2]);
  const client = new Redis.Cluster([{ host: "127.0.0.1", port }], { scaleReads: "all" });
  await new Promise((resolve, reject) => {
    client.once("ready", resolve);
    client.once("error", reject);
  });
  console.log("nodes", client.nodes("all").length);
  const numbers = [...Array(200).keys()];
  await Promise.all(numbers.map((number) => client.set(`js:${number}`, number)));
  const got = await Promise.all(numbers.map((number) => client.get(`js:${number}`)));
  console.log("sum", got.reduce((sum, value) => sum + Number(value), 0));
  console.log("mget of one slot", await client.mset("{js}:a", 1, "{js}:b", 2), await client.mget("{js}:a", "{js}:b"));
  const pipe = client.pipeline();
  numbers.slice(0, 50).forEach((number) => pipe.get(`{js}:${number}`));
  console.log("pipeline", (await pipe.exec()).length);
  console.log("multi", JSON.stringify(await client.multi().incr("{js}:n").incr("{js}:n").exec()));
  const heard = new Promise((resolve) => client.on("message", (channel, text) => resolve(`${channel} ${text}`)));
  await client.subscribe("js-news");
  const publisher = new Redis(port);
  await publisher.publish("js-news", "hello");
  console.log("heard", await heard);
  const gone = await Promise.all(numbers.map((number) => publisher.del(`js:${number}`)));
  console.log("deleted", gone.reduce((sum, value) => sum + value, 0));
  await publisher.del("{js}:a", "{js}:b", "{js}:n");
  publisher.disconnect();
  client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
