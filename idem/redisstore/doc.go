// Package redisstore keeps idempotency records in Redis or Valkey: a claim, or the answer from a record, is one round
// trip. It says what that is worth: the operator declares whether the server keeps what it has confirmed.
//
//	client, err := valkey.NewClient(valkey.ClientOption{
//		InitAddress: []string{os.Getenv("REDIS_ADDRESS")}, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
//		DisableCache: true, DisableRetry: true, PipelineMultiplex: -1, // one connection
//	})
//	store, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Durable})
//	engine, err := idem.New(store, nil)
//
//	receipt, err := idem.Do(ctx, engine, key, order, charge)
//
// It is an [idem.Store] as any other: steps, leases, limits, pauses, sweeps and operators' resolutions work as on
// DynamoDB. It needs Redis 7 or newer, Valkey, or a service that is compatible with one of them, alone or as a cluster.
//
// The client is valkey-go: a program with it is 2 MB smaller than one with go-redis and starts faster in a cold
// environment, and it sends no write twice by itself. A long-lived service leaves DisableCache and DisableRetry true,
// since the store reads nothing through the client's cache and makes failed calls again itself, and may leave
// out PipelineMultiplex: calls share a connection, and the default is up to four to a server that is no cluster.
// valkey.NewClient dials, and returns an error while Redis is down: until Redis is back, no process can start that ends
// with that error.
//
// # What it relies on
//
// A claim that is lost makes a second execution possible: the next call finds no record. So does an outcome that is
// lost. Redis copies to its replicas after it has confirmed, and a replica that takes over may lack the last second;
// WAIT makes that rarer, and not impossible. A server cannot be asked what it promises. [Options] say it:
//
//   - [Durable]: MemoryDB; ElastiCache with synchronous durability; a server of your own with appendonly yes,
//     appendfsync always and no replica that takes over.
//   - [Lossy]: any other one. Operations that are not repeatable, work that is accepted for later, steps of
//     [idem.AtMostOnce] and steps with a compensation get a [*protocol.ConfigError], and do not run. What a handler
//     did before such a step has happened. What is repeatable is not repeated unless the server loses something. A
//     pause can be lost, too, and what a limit has counted: operations run on, and more keys than the limit pass.
//
// A server that was flushed, or that comes back without its data, is an empty one: the same as if all records had
// expired. An attempt that runs then cannot record its outcome, and another one may run at the same time.
//
// The memory must not be used up by others: with any maxmemory-policy but noeviction Redis removes records. With
// noeviction it refuses claims of keys that have no record, so that nothing new runs. What is recorded answers, what
// runs still ends, and a key whose record is there can be claimed again: such writes grow beyond maxmemory. Leave room
// for the results of all that may run at a time. [Store.Check] looks for what it can see. Call it when a function
// starts.
//
// The clocks of the callers count: see idem.Options.Margin. By its own clock the server removes what expired a minute
// ago. If that clock is ahead of the callers' by more than this minute, records go before they have expired, and
// operations run again: Check compares it with the caller's. Leave out ClientOption.SendToReplicas: a replica may lack
// what its master has confirmed.
//
// # What it costs
//
// A first execution is two round trips, a claim and an outcome; a replay is one. Each change is one script, sent by its
// digest. A result of more than 8 KiB is read by one more.
//
// A record takes about 1 KB of memory and 1.2 times its result, until it has expired and a minute longer. A million
// operations a day with results of 200 bytes, kept for a day, take 1.3 GB, and replicas as much again.
//
// A sweep makes 96 short reads. Listing all records asks each master for all of its keys, with SCAN: it returns each
// record that is there from beginning to end, but can miss those of a slot that moves to another node during it. A
// sweep of open questions does not scan.
//
// # Keys
//
// What changes together is in one slot of a cluster, by a hash tag. There are 48 groups of records, which have slots as
// far apart as can be, so that each node of a cluster has about as many. More than 48 masters are of no use. A group,
// such as cr, has:
//
//	idem:{cr}:row:<id>             a hash: version, data, due, and part:<name> for each large result
//	idem:{cr}:due                  the open questions and claims that are watched, by shard and time
//	idem:{cr}:change:<id> <entry>  a change by an operator
//	idem:{cr}:changes              those changes by record, by shard and time, and by expiry
//
// Redis removes rows and changes when they have expired: no sweep needs to. A row with an open question has no expiry,
// nor has one with a step that is done.
//
// While a slot moves to another node, changes of its records can be refused (TRYAGAIN): nothing runs then, and an
// outcome waits in its process until it can be written.
//
// An ACL needs +eval, +evalsha, +hmget, +hget, +get, +zrange, and in the script also +hset, +hdel, +unlink, +persist,
// +pexpireat, +set, +zadd, +zrem and +time, on the keys idem:*. Scans and [Store.Check] need +scan, +role, +info and
// +config|get, and the client needs +hello, +ping and +cluster, and +select for another database than 0.
//
// # What it refuses
//
// A unit of work and atomic mode: Redis commits no writes of another database. Packages pgstore and dynamostore do.
//
// # Lambda
//
// The function must be in the VPC of the cluster. Each environment runs one call at a time: one connection to each
// node is enough, with PipelineMultiplex -1. Use TLS: MemoryDB and ElastiCache with authentication demand it. With IAM
// authentication make the token in ClientOption.AuthCredentialsFn: it is good for 15 minutes, and ElastiCache ends such
// connections after 12 hours, upon which the client makes new ones. A connection that was cut while the environment was
// frozen costs the next call a second try.
package redisstore
