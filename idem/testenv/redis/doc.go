// Package redis gives tests a Redis or a Valkey, alone or as a cluster: processes of this machine,
// and no client of them.
//
//	func TestPayments(t *testing.T) {
//		server := redis.Start(t, "appendonly=yes", "maxmemory-policy=noeviction")
//		address := server.Address() // host:port
//		server.Kill()
//		require.NoError(t, server.Start())
//		...
//
//	func TestFailover(t *testing.T) {
//		shards := redis.Cluster(t, 3, 1) // three masters with a replica each
//		shards[0].Master.Kill()
//		...
//
// The server is redis-server or valkey-server on PATH, of version 7.0 or newer. It listens on
// 127.0.0.1 alone. Its files are in a temporary folder. Server and folder do not outlive the test
// process, also if it panics or is killed.
package redis
