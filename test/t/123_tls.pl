
# zklock.ssl_*: TLS with ZooKeeper servers that have nothing but a secure port, with three of them, and
# through a proxy that looks, stalls and cuts.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IPC::Run qw(run start);
use List::Util qw(min);
use POSIX ();
use Socket;
use Sys::Hostname;
use Time::HiRes qw(time);

use HoldingProxy;
use ZklockTest qw(!acquire);

my $zk = ZooKeeper->new(start => 0);
my $dir = $zk->{directory};
my $port = $zk->setting(1, 'clientPort');
my $plain_cfg = slurp_file("$dir/1/zoo.cfg");
my ($node, $b, $session);	# the server, a backend, and the session with ZooKeeper

my %SSL = map { ("zklock.ssl_${_}_file" => "$dir/our.$_") } qw(ca cert key);
my %NO_CERTIFICATE = map { ("zklock.ssl_${_}_file" => '') } qw(cert key);

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

# What the log has since then.
my $log_end = 0;
sub remember_log { $log_end = -s $node->logfile; return; }
sub log_since { return substr log_of(), $log_end; }

# A refusal, as callers and the log see it.
sub is_refused
{
	my ($what, $reason) = @_;
	$zk->wait_until(sub { log_since() =~ /could not authenticate with ZooKeeper: $reason/ }, "$what: the log");
	my $result = $b->run(acquire('/refused', '1min'));
	is($result->{errcode}, '28000', "$what: 28000");
	like($result->{err}, qr/this server is not authenticated with ZooKeeper.*DETAIL:  The last error was: $reason/s, 'with the reason');
	cmp_ok($result->{seconds}, '<', 20, 'without a wait for the end of its time');
	is($b->errcode(q{SELECT * FROM zk_lock_queue('/refused')}), '28000', 'for a queue, too');
	# Another server's error may stand there for a moment.
	ok($zk->wait_until(sub { $node->status('last_error') =~ /^$reason/ }, 'the reason in zk_status'), 'zk_status has the reason');
	is(scalar(() = log_since() =~ /could not authenticate with ZooKeeper/g), 1, 'the log says it once');
	return;
}

# The same if it is no matter of trust.
sub is_away
{
	my ($what, $reason) = @_;
	$zk->wait_until(sub { log_since() =~ /could not connect to ZooKeeper.*\n.*DETAIL:  The last error was: $reason/ }, "$what: the log");
	$node->wait_until("SELECT last_error ~ '^TLS|^server' FROM zk_status");
	my $result = $b->run(acquire('/away', '1s'));
	is($result->{errcode}, '08006', "$what: 08006");
	like($result->{err}, qr/DETAIL: [^\n]*The last error was: $reason/, 'with the reason');
	like($node->status('last_error'), qr/^$reason/, 'zk_status has the reason');
	return;
}

sub is_right_again
{
	$node->wait_until_connected;
	is($node->status('session_id, epoch'), "$session|1", 'the same session goes on');
	return;
}

sub tls_failed { my ($reason, $at) = @_; $at //= $port; return qr/TLS with server 127\.0\.0\.1:$at failed: $reason/; }

make_authority($_) foreach qw(friends strangers);
make_certificate('zk', 'friends', 'DNS:localhost,IP:127.0.0.1');
make_certificate('zk-named', 'friends', 'DNS:localhost');
make_certificate('zk-other', 'friends', 'DNS:zk.example,IP:127.0.0.2');
make_certificate('zk-stranger', 'strangers', 'DNS:localhost,IP:127.0.0.1');
make_certificate('zk-expired', 'friends', 'DNS:localhost,IP:127.0.0.1', 0);
make_certificate('db', 'friends', 'DNS:db');
make_certificate('db-renewed', 'friends', 'DNS:db');
make_certificate('db-stranger', 'strangers', 'DNS:db');
make_certificate('db-expired', 'friends', 'DNS:db', 0);
sh("cp db.pem client.pem; cp friends.ca friends-ca.pem");	# the first is for test/zookeeper, to ask whether the server serves

sub secure_lines
{
	my ($name, $at, @more) = @_;
	return join '', map { "$_\n" } "secureClientPort=$at", 'secureClientPortAddress=0.0.0.0',
		'serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
		"ssl.keyStore.location=$dir/$name.pem", "ssl.trustStore.location=$dir/friends-ca.pem", @more;
}

sub secure_server
{
	my ($name, @more) = @_;
	my $cfg = $plain_cfg =~ s/^(?:clientPort|clientPortAddress)=.*\n//mgr;
	write_file('1/zoo.cfg', $cfg . secure_lines($name, $port, @more));
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
is($node->status(q{tls, certificate_until BETWEEN now() + '29 days' AND now() + '30 days'}), 't|t', 'zk_status: TLS, and the end of our certificate');
is($b->query(acquire('/held')), 't', 'a lock is acquired');
is($b->query(q{SELECT count(*) FROM zk_lock_queue('/held')}), '1', 'and its queue is read');
is($b->query(q{SELECT bool_and(zk_lock_acquire('/many/' || i)) FROM generate_series(1, 900) i}), 't', 'so are many locks');
is($b->query(q{SELECT count(*) FROM (SELECT zk_lock_release('/many/' || i) FROM generate_series(1, 900) i) r}), '900', 'and released');
$session = $node->status('session_id');
my $worker = $node->worker_pid;

# More at a time than fits into one record.
my $long = q{SELECT array_agg('/large/' || repeat('x', 200) || i) FROM generate_series(1, 500) i};
is($b->query("SELECT zk_multilock_acquire(($long))"), 't', 'many long paths at once');
is($b->query("SELECT bool_and(zk_lock_release(path)) FROM unnest(($long)) path"), 't', 'are released');

# The key is in no process but the worker, and in no setting or view.
my ($secret) = slurp_file("$dir/db.key") =~ /\n(\S{40})/;
is_deeply([ grep { $_ != $worker } $node->who_has_in_memory($secret) ], [], 'only the worker can have the key in its memory');
is($node->safe_psql('postgres', q{CREATE ROLE plain; SET ROLE plain;
	SELECT count(*) FROM pg_settings WHERE name LIKE 'zklock.ssl%'}), '0', 'not every role sees the names of the files');
unlike(log_of(), qr/\Q$secret\E/, 'nor does the log have it, at debug5');
$node->set('log_min_messages', 'warning');

# --- no port is open, and an orderly stop ends the session ---

my %sockets = map { (readlink($_) // '') =~ /^socket:\[(\d+)\]/ ? ($1 => 1) : () } glob "/proc/$worker/fd/*";
my @listening = grep { $sockets{ (split)[9] } && (split)[3] eq '0A' } map { split /\n/ } map { slurp_file("/proc/$worker/net/$_") } grep { -e "/proc/$worker/net/$_" } qw(tcp tcp6);
is_deeply(\@listening, [], 'the worker listens nowhere');
cmp_ok(scalar(keys %sockets), '>', 1, 'though it has sockets');

# Until the server ends the connection, or the limit of a second is over.  A loaded machine may be slow once.
my @seconds;
foreach my $n (1 .. 3)
{
	$node->wait_until_connected;
	my $id = $node->status('session_id');
	is($node->safe_psql('postgres', q{SELECT zk_lock_acquire('/stopped'), pg_sleep(0)}), 't|', "stop $n: a lock");
	$b->quit;
	$node->set('log_line_prefix', '%n ');
	remember_log();
	$node->stop('fast');
	my ($begun, $ended) = log_since() =~ /^(\S+) LOG:  received fast shutdown request.*^(\S+) LOG:  closed the ZooKeeper session/ms;
	push @seconds, $ended - $begun;
	unlike($zk->cmd('dump'), qr/\Q$id\E/, 'the session is closed');
	$node->start;
	$b = $node->backend;
}
diag("orderly stops took @seconds s");
cmp_ok(min(@seconds), '<', 0.9, 'without a wait');
$node->wait_until_connected;
$session = $node->status('session_id');
is($b->query(acquire('/held')), 't', 'the lock is acquired again');

# --- files that cannot be used ---

my %unusable = (
	'no key' => [ sub { unlink "$dir/our.key" }, qr/could not open "zklock\.ssl_key_file": No such file/ ],
	'no certificate' => [ sub { unlink "$dir/our.cert" }, qr/could not open "zklock\.ssl_cert_file": No such file/ ],
	'no authority' => [ sub { unlink "$dir/our.ca" }, qr/could not open "zklock\.ssl_ca_file": No such file/ ],
	'a key that cannot be read' => [ sub { chmod 0, "$dir/our.key" }, qr/could not open "zklock\.ssl_key_file": Permission denied/ ],
	'others can read the key' => [ sub { chmod 0640, "$dir/our.key" }, qr/"zklock\.ssl_key_file" cannot be used: it has group or world access/ ],
	'another key' => [ sub { write_file('our.key', slurp_file("$dir/zk.key")) }, qr/"zklock\.ssl_key_file" cannot be used: it does not belong to the certificate/ ],
	'half a certificate' => [ sub { write_file('our.cert', substr slurp_file("$dir/db.cert"), 0, 500) }, qr/"zklock\.ssl_cert_file" cannot be used: / ],
	'an empty authority' => [ sub { write_file('our.ca', '') }, qr/"zklock\.ssl_ca_file" cannot be used: / ],
	'a key with a passphrase' => [ sub { sh('openssl rsa -aes128 -passout pass:x -in db.key -out our.key; chmod 600 our.key') },
		qr/"zklock\.ssl_key_file" cannot be used: / ]);
my $connects = $node->status('connects');
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
is($node->status('connects'), $connects, 'all over one connection');

# --- renewed, refused, and right again; a transaction holds a lock all the time ---

$b->query('CREATE TABLE t (i int)');
my $holder = $node->backend;
$holder->query('BEGIN; INSERT INTO t VALUES (1)');
is($holder->query(q{SELECT zk_xact_lock_acquire('/xact')}), 't', 'a transaction holds a lock');
use_certificate('db-renewed');
$node->reload;
wait_for_log(qr/continuing the ZooKeeper session with other credentials/, 1);
$node->wait_until_connected;
is($node->status('session_id'), $session, 'a renewed certificate: the same session goes on');

my %mistrusted = (
	'our certificate is of another authority' => [ qr/it has sent the alert: /, qr/is not signed by an authority in "zklock\.ssl_ca_file"/, 'db-stranger' ],
	'our certificate has expired' => [ qr/it has sent the alert: /, qr/is not valid now\n.*DETAIL:  It is valid from 2/, 'db-expired' ],
	'the server is of another authority' => [ qr/its certificate is not trusted: /, qr/is not signed by/, 'db', 'strangers' ]);
sub refuses_certificates
{
	my ($version) = @_;
	foreach my $what (sort keys %mistrusted)
	{
		my ($reason, $warning, @files) = @{ $mistrusted{$what} };
		remember_log();
		use_certificate(@files);
		$node->reload;
		is_refused("$version: $what", tls_failed($reason));
		unlike(log_since(), qr/could not connect to ZooKeeper/, 'and nothing else');
		is(scalar(() = log_since() =~ /WARNING:  the certificate in "zklock\.ssl_cert_file" $warning/g), 1, 'but a warning of what can be known before');
		use_certificate('db');
		$node->reload;
		is_right_again();
	}
	return;
}
refuses_certificates('TLS 1.2');

# With TLS 1.3, the client has completed the handshake when the server refuses its certificate.
secure_server('zk', 'ssl.protocol=TLSv1.3', 'ssl.enabledProtocols=TLSv1.3', 'ssl.ciphersuites=TLS_AES_256_GCM_SHA384');
is_right_again();
refuses_certificates('TLS 1.3');
remember_log();
$node->configure(%NO_CERTIFICATE);
$node->reload;
is_refused('no certificate', tls_failed(qr/it has sent the alert: /));
$node->configure(%SSL);
$node->reload;
is_right_again();

# The certificate's validity period and names are checked, too.
foreach my $what ('expired', 'other')
{
	remember_log();
	secure_server("zk-$what");
	is_refused("the server's certificate: $what",
		tls_failed($what eq 'other' ? qr/its certificate is not trusted: hostname mismatch/i : qr/its certificate is not trusted: certificate has expired/));
	secure_server('zk');
	is_right_again();
}

# A server that does not want certificates.
secure_server('zk', 'ssl.clientAuth=none');
is_right_again();
$node->configure(%NO_CERTIFICATE);
$node->reload;
wait_for_log(qr/continuing the ZooKeeper session with other credentials/, 1);
is_right_again();
is($holder->run('COMMIT')->{err}, '', 'the transaction that held a lock all the time commits');
is($b->query(q{SELECT zk_lock_is_held('/held')}), 't', 'and the session-level lock is held');
$holder->quit;
$node->configure(%SSL);
$node->reload;

# --- a name counts for its own addresses only ---

secure_server('zk-named');
is_right_again();
my $other = hostname();
my $address = gethostbyname($other);
SKIP:
{
	skip 'this host does not know its own name', 8 unless defined $address;
	$address = inet_ntoa($address);
	remember_log();
	$node->configure('zklock.hosts' => "localhost:1,$other:$port");
	$node->reload;
	is_refused('the name of another server',
		qr/TLS with server \Q$address\E:$port failed: its certificate is not trusted: hostname mismatch/i);
	my $before = attempts();
	my %seen;
	$zk->wait_until(sub { $seen{ $b->run(acquire('/refused', '0'))->{err} } = 1; return attempts() >= $before + 3; }, 'three more attempts');
	is(join(', ', grep { !/hostname mismatch/i } keys %seen), '', 'that another server is away does not hide the reason');
}
$node->configure('zklock.hosts' => "localhost:$port");
$node->reload;
$node->wait_until_connected;
secure_server('zk');

# --- what the environment says, addresses instead of names ---

$b->quit;
secure_server('zk-stranger');
$node->stop;
$node->configure('zklock.hosts' => "127.0.0.1:$port", 'zklock.session_timeout' => '4s');
{
	local $ENV{SSL_CERT_FILE} = "$dir/strangers.ca";
	$node->start;
}
$b = $node->backend;
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

# --- servers without TLS, with an old one, and settings that are missing ---

sub at_server
{
	my ($at) = @_;
	remember_log();
	$node->configure('zklock.hosts' => "127.0.0.1:$at", 'zklock.connection_timeout' => '1s');
	$node->reload;
	return;
}
my $plain = ZooKeeper->new;
my $plain_port = $plain->setting(1, 'clientPort');
at_server($plain_port);
is_away('a port without TLS', tls_failed(qr/it closed the connection in the handshake, as a port without TLS does/, $plain_port));

my $old_port = PostgreSQL::Test::Cluster::get_free_port();
my $old = start([ 'openssl', 's_server', '-quiet', '-accept', $old_port, '-cert', "$dir/zk.pem", '-tls1', '-cipher', 'DEFAULT@SECLEVEL=0' ],
	'<', '/dev/null', '>', '/dev/null', '2>', '/dev/null');
END { my $status = $?; $old->kill_kill if $old; $? = $status; }
$zk->wait_until(sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$old_port") }, 's_server');
at_server($old_port);
is_refused('TLS 1.0 only', tls_failed(qr/it has sent the alert: protocol version/, $old_port));

my $talker = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "socket: $!";
my $talker_pid = fork // die "fork: $!";
if (!$talker_pid)
{
	while (my $client = $talker->accept) { syswrite $client, "SSH-2.0-OpenSSH_9.2p1\r\n"; sysread $client, my $hello, 1000; }
	POSIX::_exit(0);
}
at_server($talker->sockport);
is_away('another service', tls_failed(qr/it does not speak TLS/, $talker->sockport));
kill 'KILL', $talker_pid;
waitpid $talker_pid, 0;
close $talker;
my $closed = PostgreSQL::Test::Cluster::get_free_port();
at_server($closed);
is_away('no server', qr/server 127\.0\.0\.1:$closed refused the connection/);

foreach my $missing ([ 'key' ], [ 'cert' ], [ 'ca' ])
{
	$node->stop;
	$node->configure('zklock.hosts' => "127.0.0.1:$port", %SSL, map { ("zklock.ssl_${_}_file" => '') } @$missing);
	$node->start;
	$b->quit;
	$b = $node->backend;
	is($b->errcode(acquire('/half', '1min')), '28000', "@$missing is missing: nothing goes without encryption");
	like($node->status('last_error'), qr/must be set together|need "zklock\.ssl_ca_file"/, 'zk_status has the reason');
}
$node->configure(%SSL, 'zklock.connection_timeout' => '2min');
$node->reload;
$node->wait_until_connected;

# --- a proxy that looks: first without TLS, so that it would be seen ---

my $seen = "$dir/seen";
sub sockets { return map { (readlink($_) // '') =~ /^socket:(.*)/ ? ($_ => $1) : () } glob "/proc/$worker/fd/*"; }
my $looker = HoldingProxy->new("127.0.0.1:$plain_port", record => $seen);
my $open = ZklockNode->started('open', undef, 'zklock.session_timeout' => '30s', 'zklock.hosts' => $looker->address);
$open->wait_until_connected;
is($open->safe_psql('postgres', q{SELECT zk_lock_acquire('/wire/secret')}), 't', 'without TLS');
like(slurp_file($seen), qr{/zklock/wire/secret}, 'a proxy sees the path');
$open->stop;
unlink $seen;

my $proxy = HoldingProxy->new("127.0.0.1:$port", record => $seen);
$b->quit;
$node->stop;
$node->configure('zklock.hosts' => $proxy->address, 'zklock.session_timeout' => '60s');
$node->start;
$node->wait_until_connected;
$b = $node->backend;
is($b->query(acquire('/wire/secret')), 't', 'with TLS');
$session = $node->status('session_id');
$worker = $node->worker_pid;
my %before = sockets();
foreach my $n (2 .. 11)
{
	$proxy->cut;
	$node->wait_until("SELECT connects >= $n FROM zk_status");
	is($b->query(acquire("/wire/secret$n")), 't', "cut $n: the next lock");
}
is_right_again();
is($node->worker_pid, $worker, 'by the same worker');
my %after = sockets();
is(scalar(keys %after), scalar(keys %before), 'no descriptor is left');
cmp_ok(scalar(grep { exists $before{$_} && $before{$_} ne $after{$_} } keys %after), '>', 0, 'and numbers came back with other sockets');
cmp_ok(-s $seen, '>', 10_000, 'the proxy has seen much');
unlike(slurp_file($seen), qr/zklock|wire|secret|lock-/, 'and nothing in clear');

# --- a proxy that stalls ---

# Requests are held back, and none is lost.
$proxy->hold('replies');
$b->send(acquire('/wire/held'));
$node->wait_for_ticket('/wire/held', 'wanted');
$proxy->pass;
is($b->result->{out}, 't', 'what was held up comes');

# Signs of life wait behind a list of 63 kB for longer than a quarter of the session timeout.
sub restart_with_timeout
{
	my ($timeout) = @_;
	$b->query('SELECT zk_lock_release_all()');
	$node->configure('zklock.session_timeout' => $timeout);
	$node->restart;
	$b->quit;
	$b = $node->backend;
	return $node->wait_until_connected;
}
is($b->query(q{SELECT count(*) FROM generate_series(1, 300) AS i WHERE zk_lock_acquire('/crowd/' || rpad(i::text, 210, '_'))}), 300, 'a large directory');
restart_with_timeout('12s');
$proxy->limit(15_000, 40);
is($b->run(acquire('/crowd', '1min'))->{out}, 't', 'what comes slowly comes');
is($node->status('connects'), 1, '... on the same connection');
$proxy->limit(0);

# In the middle of a record.  The library notices the silence, for which the session has to be short.
restart_with_timeout('4s');
is($b->query(acquire('/wire/torn')), 't', 'a lock');
remember_log();
$proxy->tear;
$node->wait_for_log(qr/lost the connection to ZooKeeper/, $log_end);
$proxy->cut;
$node->wait_until_connected;
like(log_since(), qr/lost the connection to ZooKeeper\n[^\n]*did not answer in time/, 'a record that does not end: a silent server');

# In the handshake, with a limit of 20 s.  The worker goes on with its work meanwhile: it stops, and it reads
# the configuration.
$b->quit;
$node->stop;
$node->configure('zklock.session_timeout' => '60s');
unlink $seen;
$proxy->hold('replies');
$node->start;
remember_log();
$zk->wait_until(sub { -s $seen }, 'the handshake');
$node->configure('zklock.hosts' => "127.0.0.1:$port");
$node->reload;
$node->wait_until_connected;
like(log_since(), qr/with a new client handle, because "zklock\.hosts" was changed/, 'a server that is silent in the handshake does not keep the worker from a reload');
unlike(log_since(), qr/in time/, 'long before the limit');

# Other servers are tried after the limit, and the message names the stage.
$node->configure('zklock.hosts' => $proxy->address, 'zklock.session_timeout' => '2s');
$node->restart;
$node->wait_until(q{SELECT last_error ~ 'did not complete the TLS handshake in time' FROM zk_status});
pass('the message names the handshake');
my @silent = map { IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "socket: $!" } 1, 2;
$node->configure('zklock.hosts' => join(',', (map { '127.0.0.1:' . $_->sockport } @silent), "127.0.0.1:$port"));
$node->restart;
$node->wait_until_connected;
pass('two servers that are silent in the handshake do not keep the worker from the third');
$node->stop;

# --- three servers ---

$zk->stop;
my $three = ZooKeeper->new(servers => 3, start => 0);
my @ports = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
append_to_file("$three->{directory}/$_/zoo.cfg", secure_lines('zk', $ports[ $_ - 1 ])) foreach 1 .. 3;
$three->start;
$node->configure('zklock.hosts' => join(',', map { "localhost:$_" } @ports), 'zklock.session_timeout' => '30s');
$node->start;
$node->wait_until_connected;
$b = $node->backend;
is($b->query(acquire('/ensemble')), 't', 'three servers: a lock');
$session = $node->status('session_id');
foreach my $n (1 .. 3)
{
	my ($at) = grep { $node->status('server') eq "127.0.0.1:$ports[$_ - 1]" } 1 .. 3;
	$three->kill9($at);
	$node->wait_until(qq{SELECT state IN ('connected', 'idle') AND server <> '127.0.0.1:$ports[$at - 1]' FROM zk_status});
	is($b->query(acquire("/ensemble/$n")), 't', "when server $at ends, the next one serves");
	$three->start($at);
}
is_right_again();

# A reply that the sockets between hold only in part: the names of znodes that are in no queue.
my $connects_before = $node->status('connects');
$three->create_many('/zklock/crowd', 8000);
is($b->query(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), '0', 'a long reply is read');
is($node->status('connects'), $connects_before, 'over the same connection');
$b->quit;
$node->stop;
unlike($three->cmd('dump', $three->leader), qr/\Q$session\E/, 'a stop ends the session');
done_testing();
