
# zklock.ssl_* and zklock.sasl_*.  Debian's library of ZooKeeper's C client has neither TLS nor
# SASL; with it, the settings are refused.  "make client-tls" builds a library that has both,
# names it in ZOOKEEPER_CLIENT, and so runs the rest: ZooKeeper servers that let no other
# client in.

use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run qw(run);
use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use InteropPeer;
use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new(start => 0);
my $dir = $zk->{directory};
my $port = $zk->setting(1, 'clientPort');
my $plain_cfg = slurp_file("$dir/1/zoo.cfg");
my ($node, $b);		# the server, and a session of it

my %SSL = map { ("zklock.ssl_${_}_file" => "$dir/our.$_") } qw(ca cert key);
my %SASL = ('zklock.sasl_user' => 'zklock', 'zklock.sasl_password_file' => "$dir/password");
my $PASSWORD = 'Aih4-oThe-ee7J';

sub acquire { my ($path, $timeout) = @_; return "SELECT zk_lock_acquire('$path'" . (defined $timeout ? ", '$timeout')" : ')'); }
sub log_of { return slurp_file($node->logfile); }
sub count { my ($regexp) = @_; return scalar(() = log_of() =~ /$regexp/g); }
sub wait_for_log { my ($regexp, $n) = @_; return $zk->wait_until(sub { count($regexp) >= $n }, "$n times in the log: $regexp"); }
sub server_log { return slurp_file("$dir/1/log"); }

sub write_file
{
	my ($name, $text, $mode) = @_;
	unlink "$dir/$name.new";
	append_to_file("$dir/$name.new", $text);
	chmod $mode // 0600, "$dir/$name.new";
	rename "$dir/$name.new", "$dir/$name" or die "$name: $!";
	return;
}

sub sh { my ($script) = @_; my $out; run([ 'bash', '-ec', "cd $dir\n$script" ], '>&', \$out) or die "$script: $out"; return; }

# A certificate authority, and a certificate that it has signed: files NAME.cert, NAME.key, and both
# in NAME.pem.
sub make_authority
{
	my ($name) = @_;
	return sh(qq{openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=$name" -keyout $name.key -out $name.ca});
}

sub make_certificate
{
	my ($name, $authority, $for, $days) = @_;
	$days //= 30;
	return sh(qq{openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -addext "subjectAltName=$for" -keyout $name.key -out $name.csr
		openssl x509 -req -in $name.csr -CA $authority.ca -CAkey $authority.key -CAcreateserial -days $days -copy_extensions copy -out $name.cert
		chmod 600 $name.key; cat $name.key $name.cert >$name.pem});
}

# The certificate that this ZooKeeper server presents after the next reload.
sub use_certificate
{
	my ($name, $ca) = @_;
	write_file("our.$_", slurp_file("$dir/$name.$_")) foreach qw(cert key);
	write_file('our.ca', slurp_file("$dir/" . ($ca // 'friends') . '.ca'));
	return;
}

# A refusal, as callers and the log see it.
my $log_end = 0;
sub remember_log { $log_end = -s $node->logfile; return; }
sub log_since { return substr log_of(), $log_end; }
sub is_refused
{
	my ($what, $reason) = @_;
	$zk->wait_until(sub { log_since() =~ /could not authenticate with ZooKeeper: $reason/ }, "$what: the log");
	my $result = $b->run(acquire('/refused', '1min'));
	is($result->{errcode}, '28000', "$what: 28000");
	like($result->{err}, qr/this server is not authenticated with ZooKeeper/, 'and says so');
	cmp_ok($result->{seconds}, '<', 20, 'without a wait for the end of its time');
	is($b->errcode(q{SELECT * FROM zk_lock_queue('/refused')}), '28000', 'for a queue, too');
	like($node->status('last_error'), qr/^$reason/, 'zk_status has the reason');
	is(scalar(() = log_since() =~ /could not authenticate with ZooKeeper/g), 1, 'the log says it once');
	return;
}

# --- with Debian's library ---

if (!$ENV{ZOOKEEPER_CLIENT})
{
	$zk->start;
	$node = ZklockNode->started('a', $zk);
	$b = $node->backend;
	is($b->query(acquire('/held')), 't', 'a lock is held');
	my %refusal = (
		(map { $_ => [ 'TLS', qr/use stunnel/ ] } keys %SSL),
		(map { $_ => [ 'SASL', qr/use "zklock\.auth_file"/ ] } keys %SASL));
	foreach my $name (sort keys %refusal)
	{
		my ($what, $hint) = @{ $refusal{$name} };
		my (undef, undef, $err) = $node->psql('postgres', "ALTER SYSTEM SET $name = 'x'");
		like($err, qr/ERROR:  invalid value for parameter "\Q$name\E": "x"/, "$name: refused");
		like($err, qr/DETAIL:  zklock was built with a library of ZooKeeper's C client that has no $what\./, 'because');
		like($err, $hint, 'with advice');
	}
	$node->configure(%SSL);
	$node->reload;
	wait_for_log(qr/LOG:  invalid value for parameter "zklock\.ssl_ca_file"/, 1);
	is($b->query(q{SELECT zk_lock_is_held('/held')}), 't', 'a reload leaves all as it is');
	is($node->safe_psql('postgres', 'SHOW zklock.ssl_ca_file'), '', 'and the setting empty');
	$b->quit;
	$node->stop;
	ok(!$node->start(fail_ok => 1), 'a server that is told to use TLS does not start without it');
	like(log_of(), qr/FATAL:  invalid value for parameter "zklock\.ssl_ca_file".*has no TLS/s, 'and says why');
	done_testing();
	exit;
}

# --- TLS: a server with nothing but a secure port ---

make_authority($_) foreach qw(friends strangers);
make_certificate('zk', 'friends', 'DNS:localhost,IP:127.0.0.1');
make_certificate('zk-other', 'friends', 'DNS:zk.example,IP:127.0.0.2');
make_certificate('zk-stranger', 'strangers', 'DNS:localhost,IP:127.0.0.1');
make_certificate('zk-expired', 'friends', 'DNS:localhost,IP:127.0.0.1', 0);
make_certificate('db', 'friends', 'DNS:db');
make_certificate('db-renewed', 'friends', 'DNS:db');
make_certificate('db-stranger', 'strangers', 'DNS:db');
make_certificate('db-expired', 'friends', 'DNS:db', 0);
sh("cp db.pem client.pem; cp friends.ca friends-ca.pem");	# the first is for test/zookeeper, to ask whether the server serves

sub secure_server
{
	my ($name) = @_;
	my $cfg = $plain_cfg =~ s/^(?:clientPort|clientPortAddress)=.*\n//mgr;
	write_file('1/zoo.cfg', $cfg . <<"END");
secureClientPort=$port
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location=$dir/$name.pem
ssl.trustStore.location=$dir/friends-ca.pem
END
	$zk->stop;
	$zk->start;
	return;
}

secure_server('zk');
use_certificate('db');
$node = ZklockNode->initialized('a', undef, 'zklock.hosts' => "localhost:$port", 'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min', 'log_min_messages' => 'debug5', %SSL);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
$node->wait_until_connected;
$b = $node->backend;
is($b->query(acquire('/held')), 't', 'TLS: a lock is acquired');
is($b->query(q{SELECT count(*) FROM zk_lock_queue('/held')}), '1', 'and its queue is read');
is($b->query(q{SELECT bool_and(zk_lock_acquire('/many/' || i)) FROM generate_series(1, 900) i}), 't', 'so are many locks');
is($b->query(q{SELECT count(*) FROM (SELECT zk_lock_release('/many/' || i) FROM generate_series(1, 900) i) r}), '900', 'and released');
my $session = $node->status('session_id');

# The key is in no process but the worker, and in no setting or view.
my ($secret) = slurp_file("$dir/db.key") =~ /\n(\S{40})/;
my ($worker) = $node->worker_pid;
is_deeply([ grep { $_ != $worker } $node->who_has_in_memory($secret) ], [], 'only the worker can have the key in its memory');
is($node->safe_psql('postgres', q{CREATE ROLE plain; SET ROLE plain;
	SELECT count(*) FROM pg_settings WHERE name LIKE 'zklock.ssl%' OR name LIKE 'zklock.sasl%'}), '0', 'not every role sees the names of the files');
unlike(log_of(), qr/\Q$secret\E/, 'nor does the log have it, at debug5');
$node->set('log_min_messages', 'warning');

# --- TLS: files that cannot be used ---

my %unusable = (
	'no key' => [ sub { unlink "$dir/our.key" }, qr/could not open "zklock\.ssl_key_file": No such file/ ],
	'no certificate' => [ sub { unlink "$dir/our.cert" }, qr/could not open "zklock\.ssl_cert_file": No such file/ ],
	'no authority' => [ sub { unlink "$dir/our.ca" }, qr/could not open "zklock\.ssl_ca_file": No such file/ ],
	'others can read the key' => [ sub { chmod 0640, "$dir/our.key" }, qr/"zklock\.ssl_key_file" cannot be used: it has group or world access/ ],
	'another key' => [ sub { write_file('our.key', slurp_file("$dir/zk.key")) }, qr/"zklock\.ssl_key_file" cannot be used: key values mismatch/ ],
	'half a certificate' => [ sub { write_file('our.cert', substr slurp_file("$dir/db.cert"), 0, 500) }, qr/"zklock\.ssl_cert_file" cannot be used: / ],
	'an empty authority' => [ sub { write_file('our.ca', '') }, qr/"zklock\.ssl_ca_file" cannot be used: / ],
	'a key with a password' => [ sub { sh('openssl rsa -aes128 -passout pass:x -in db.key -out our.key; chmod 600 our.key') },
		qr/"zklock\.ssl_key_file" cannot be used: / ]);
foreach my $what (sort keys %unusable)
{
	my ($make, $message) = @{ $unusable{$what} };
	$make->();
	my $n = count($message);
	$node->reload;
	wait_for_log(qr/credentials for ZooKeeper were not reloaded: $message/, $n + 1);
	is($b->query(acquire('/beside', '0')), 't', "$what: goes on with what it has");
	$b->query(q{SELECT zk_lock_release('/beside')});
	use_certificate('db');
}
is($node->status('connects'), '1', 'all over one connection');

# --- TLS: renewed, refused, and right again; a transaction holds a lock all the time ---

$b->query('CREATE TABLE t (i int)');
my $holder = $node->backend;
$holder->query('BEGIN; INSERT INTO t VALUES (1)');
is($holder->query(q{SELECT zk_xact_lock_acquire('/xact')}), 't', 'a transaction holds a lock');
use_certificate('db-renewed');
$node->reload;
wait_for_log(qr/continuing the ZooKeeper session with other credentials/, 1);
$node->wait_until_connected;
is($node->status('session_id'), $session, 'a renewed certificate: the same session goes on');

sub tls_failed { my ($reason) = @_; return qr/TLS with server 127\.0\.0\.1:$port failed: $reason/; }
sub is_right_again
{
	$node->wait_until_connected;
	is($node->status('session_id, epoch'), "$session|1", 'with the right one again, the same session goes on');
	return;
}

my %mistrusted = (
	'our certificate is of another authority' => [ qr/.*alert/, 'db-stranger' ],
	'our certificate has expired' => [ qr/.*alert/, 'db-expired' ],
	'the server is of another authority' => [ qr/certificate verify failed/, 'db', 'strangers' ]);
foreach my $what (sort keys %mistrusted)
{
	my ($reason, @files) = @{ $mistrusted{$what} };
	remember_log();
	use_certificate(@files);
	$node->reload;
	is_refused($what, tls_failed($reason));
	unlike(log_since(), qr/could not connect to ZooKeeper/, 'and nothing else');
	use_certificate('db');
	$node->reload;
	is_right_again();
}

# The certificate's validity period and names are checked, too.
foreach my $what ('expired', 'other')
{
	remember_log();
	secure_server("zk-$what");
	is_refused("the server's certificate: $what", tls_failed(qr/certificate verify failed/));
	secure_server('zk');
	is_right_again();
}
is($holder->run('COMMIT')->{err}, '', 'the transaction that held a lock all the time commits');
is($b->query(q{SELECT zk_lock_is_held('/held')}), 't', 'and the session-level lock is held');
$holder->quit;
$b->quit;

# --- TLS: what the environment says, addresses instead of names, and silent servers ---

secure_server('zk-stranger');
$node->stop;
$node->configure('zklock.hosts' => "127.0.0.1:$port", 'zklock.session_timeout' => '4s');
{
	local $ENV{SSL_CERT_FILE} = "$dir/strangers.ca";
	$node->start;
}
$b = $node->backend;
remember_log();
$node->wait_until(q{SELECT last_error IS NOT NULL FROM zk_status});
is($b->errcode(acquire('/env', '1min')), '28000', 'authorities of the system do not count');

# Of the three attempts that follow, two at least come after a pause of a second or more.
sub attempts { return scalar(() = server_log() =~ /Unsuccessful handshake/g); }
my $begun = time;
my $before = attempts();
$zk->wait_until(sub { attempts() >= $before + 3 }, 'three more attempts');
cmp_ok(time - $begun, '>', 1.5, 'there is no storm of attempts');
secure_server('zk');
$node->wait_until_connected;
is($b->query(acquire('/env')), 't', 'a server that has a number has a certificate for that');

my @silent = map { IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "socket: $!" } 1, 2;
my $silent = join ',', map { '127.0.0.1:' . $_->sockport } @silent;
$node->configure('zklock.hosts' => "$silent,127.0.0.1:$port");
$node->restart;
$node->wait_until_connected;
pass('two servers that are silent in the handshake do not keep the worker from the third');
$node->configure('zklock.hosts' => $silent);
$node->restart;
$node->wait_until(q{SELECT last_error LIKE 'TLS with server%no answer in time' FROM zk_status});
$begun = time;
$node->stop('fast');
cmp_ok(time - $begun, '<', 20, 'nor from stopping');

# --- settings that do not go together ---

$node->configure('zklock.hosts' => "127.0.0.1:$port", 'zklock.ssl_key_file' => '');
$node->start;
$b->quit;
$b = $node->backend;
is($b->errcode(acquire('/half', '1min')), '28000', 'a setting is missing: nothing goes without encryption');
like($node->status('last_error'), qr/must be set together/, 'zk_status has the reason');
write_file('password', "$PASSWORD\n");
$node->configure(%SSL, %SASL);
$node->reload;
$node->wait_until(q{SELECT last_error LIKE '%TLS or SASL, but not both' FROM zk_status});
is($b->errcode(acquire('/both', '1min')), '28000', 'TLS and SASL exclude each other');

# --- SASL: a server that refuses clients without it ---

write_file('jaas', qq{Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_zklock="$PASSWORD"; };\n});
my $jaas = "-Djava.security.auth.login.config=$dir/jaas -Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
sub sasl_server
{
	my ($options) = @_;
	$zk->stop;
	write_file('1/zoo.cfg', $plain_cfg);
	$zk->{java_opts} = $options;
	$zk->start;
	return;
}
sasl_server("$jaas -Dzookeeper.sessionRequireClientSASLAuth=true");
$node->configure((map { $_ => '' } keys %SSL), 'zklock.session_timeout' => '30s', 'zklock.acl' => 'creator',
	'log_min_messages' => 'debug5');
$node->restart;
$node->wait_until_connected;
$b->quit;
$b = $node->backend;
is($b->query(acquire('/held')), 't', 'SASL: a lock is acquired');
$session = $node->status('session_id');
$worker = $node->worker_pid;
is_deeply([ grep { $_ != $worker } $node->who_has_in_memory($PASSWORD) ], [], 'only the worker can have the password in its memory');
unlike(log_of(), qr/\Q$PASSWORD\E/, 'nor does the log have it, at debug5');
$node->set('log_min_messages', 'warning');

$holder = $node->backend;
$holder->query('BEGIN; INSERT INTO t VALUES (2)');
is($holder->query(q{SELECT zk_xact_lock_acquire('/xact')}), 't', 'a transaction holds a lock');
%unusable = (
	'no file' => [ sub { unlink "$dir/password" }, qr/could not open "zklock\.sasl_password_file": No such file/ ],
	'others can read it' => [ sub { chmod 0644, "$dir/password" }, qr/"zklock\.sasl_password_file" cannot be used: it has group or world access/ ],
	'an empty file' => [ sub { write_file('password', '') }, qr/there is no password in it/ ],
	'two lines' => [ sub { write_file('password', "$PASSWORD\n$PASSWORD\n") }, qr/it must have one line/ ],
	'too long' => [ sub { write_file('password', 'x' x 256) }, qr/the password is too long/ ]);
foreach my $what (sort keys %unusable)
{
	my ($make, $message) = @{ $unusable{$what} };
	my $n = count($message);
	$make->();
	$node->reload;
	wait_for_log(qr/credentials for ZooKeeper were not reloaded: [^\n]*$message/, $n + 1);
	is($b->query(acquire('/beside', '0')), 't', "$what: goes on with what it has");
	write_file('password', "$PASSWORD\n");
}
is($node->status('connects'), '1', 'all over one connection');

my $refused = qr/ZooKeeper refused the credentials of this server/;
remember_log();
write_file('password', "wrong\n");
$node->reload;
is_refused('a wrong password', $refused);
unlike(log_since(), qr/could not connect to ZooKeeper/, 'and nothing else');
is(scalar(() = server_log() =~ /failed to SASL authenticate/g), 1, 'ZooKeeper was asked once');
write_file('password', $PASSWORD);
$node->reload;
is_right_again();
is($holder->run('COMMIT')->{err}, '', 'the transaction that held a lock all the time commits');
is($b->query(q{SELECT zk_lock_is_held('/held')}), 't', 'and the session-level lock is held');

# Curator and kazoo, as the same user; what each makes is for its creator.
write_file('jaas_client', qq{Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="zklock" password="$PASSWORD"; };\n});
foreach my $service (qw(curator kazoo))
{
	local $ENV{JDK_JAVA_OPTIONS} = "-Djava.security.auth.login.config=$dir/jaas_client";
	local $ENV{KAZOO_SASL} = "zklock:$PASSWORD";
	my $friend = InteropPeer->$service($zk, user => "$service:x")->actor('c1');
	$b->query(acquire("/$service/ours"));
	is($friend->query("acquire mutex /zklock/$service/ours 200"), 'f', "$service, same user: zklock has the lock");
	$friend->send("acquire mutex /zklock/$service/ours");
	$node->wait_until_contended("/$service/ours");
	$b->query("SELECT zk_lock_release('/$service/ours')");
	is($friend->answer, 't', 'then the service has it');
	$b->send(acquire("/$service/ours"));
	$node->wait_for_ticket("/$service/ours", 'queued');
	$friend->query("release mutex /zklock/$service/ours");
	is($b->result->{out}, 't', 'then zklock again');
}

# A reconnect authenticates again.
$zk->stop;
$node->wait_until_away;
$zk->start;
is_right_again();

# Without SASL on this side, and without SASL on the other.
remember_log();
$node->configure('zklock.sasl_user' => '', 'zklock.sasl_password_file' => '');
$node->reload;
is_refused('no user', $refused);
$node->configure(%SASL);
$node->reload;
is_right_again();
$holder->quit;
$b->query('SELECT zk_lock_release_all()');
sasl_server("$jaas -Dzookeeper.enforce.auth.enabled=true -Dzookeeper.enforce.auth.schemes=sasl");
$node->wait_until_connected;
is($b->query(acquire('/enforced')), 't', 'enforce.auth.schemes=sasl: let in');
remember_log();
sasl_server('');
is_refused('a server that knows no SASL', $refused);
$b->quit;
$node->stop;
done_testing();
