
# The hardened set-up of doc/security.md, performed line by line: TLS, authentication, access control lists and privileges.  Then the test tries everything that must
# fail.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use IPC::Run qw(run);

use ZklockTest;

# --- reading the page ---

my ($section) = slurp_file("$FindBin::Bin/../../doc/security.md")
  =~ /^## A hardened set-up from end to end\n(.*?)(?=^## |\z)/ms;
my %block;
while ($section =~ /^ +```(\S+)(?: (\S+))?\n(.*?)^ +```\n/msg)
{
	my ($name, $text) = ($2 // $1, $3);
	$text =~ s/^   //mg;
	$block{$name} = $text;
}
is(join(' ', sort keys %block), 'certificates credentials jvmflags postgresql.conf sql zkcli zoo.cfg', 'the steps of the page');

# The two hosts of the page are one here, which the Java client may call localhost, and the services have no directory in /etc.
my $zk = ZooKeeper->new(start => 0);
my $dir = $zk->{directory};
my $zk_port = $zk->setting(1, 'clientPort');
sub here
{
	my ($text) = @_;
	return $text =~ s{/etc/(?:zookeeper|zklock)/}{$dir/}gr =~ s/zk1:2281/127.0.0.1:$zk_port/gr
	  =~ s/\b2281\b/$zk_port/gr =~ s/DNS:\$host\b/$&,DNS:localhost,IP:127.0.0.1/gr;
}

sub sh { my ($script) = @_; my $out; run([ 'bash', '-ec', "cd $dir\n$script" ], '>&', \$out) or die "$script: $out"; return; }

sub write_file
{
	my ($name, $text, $mode) = @_;
	unlink "$dir/$name";
	append_to_file("$dir/$name", $text);
	chmod $mode, "$dir/$name";
	return;
}

# --- performing it ---

sh(here($block{certificates}));
sh('cp db1.pem client.pem');	# with which test/zookeeper asks whether the server serves

my $cfg = slurp_file("$dir/1/zoo.cfg") =~ s/^(?:clientPort|clientPortAddress|4lw\.commands\.whitelist)=.*\n//mgr;
write_file('1/zoo.cfg', $cfg . "secureClientPortAddress=127.0.0.1\n" . here($block{'zoo.cfg'}), 0600);
$zk->start;

# ZooKeeper's own shell.  Returns all that it says.
sub zkcli
{
	my ($commands) = @_;
	my $out;
	run([ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', split(' ', here($block{jvmflags})), '-cp',
			join(':', map { "/usr/share/java/$_.jar" } qw(slf4j-nop zookeeper-jute zookeeper netty-codec netty-resolver)),
			'org.apache.zookeeper.ZooKeeperMain', '-waitforconnection', '-server', here('zk1:2281') ],
		'<', \$commands, '>&', \$out, IPC::Run::timeout(60));
	return $out;
}
unlike(zkcli($block{zkcli}), qr/NoAuth|failed|error/i, 'the tree is closed');

write_file('credentials', $block{credentials}, 0600);
my $node = ZklockNode->initialized('db1', undef, 'zklock.session_timeout' => '30s', 'zklock.connection_timeout' => '3s');
$node->append_conf('postgresql.conf', here($block{'postgresql.conf'}));
$node->start;
$node->safe_psql('postgres', $block{sql});
$node->wait_until_connected;

# --- what the set-up allows ---

my $batch = $node->backend(extra_params => [ '-U', 'nightly' ]);
is($batch->query(q{SELECT zk_lock_acquire('/jobs/nightly')}), 't', 'the role that may acquire locks does');
is($node->safe_psql('postgres', q{SELECT usename FROM zk_locks WHERE path = '/jobs/nightly'}), 'nightly', 'under its name');
is($batch->errcode(qq{SELECT * FROM $_('/jobs/nightly')}), '42501', "but not what it may not: $_") foreach 'zk_lock_queue', 'zk_lock_queue_or_null';
is($batch->errcode('SHOW zklock.auth_file'), '42501', 'nor see where the credentials are');
is($node->errcode(q{CREATE ROLE plain; SET ROLE plain; SELECT zk_lock_acquire('/jobs/nightly')}), '42501', 'another role may not');

# The test itself looks at znodes as the administrator, with a certificate.
$zk->{hosts} = "127.0.0.1:$zk_port";
$ENV{ZOOKEEPER_TLS} = "$dir/ca.pem,$dir/db1.crt,$dir/db1.key";
my ($admin) = $block{zkcli} =~ /digest (admin:\S+)/;
my ($secret) = $block{credentials} =~ /digest (\S+)/;
is_deeply([ map { $_->[0] } @{ $zk->acl('/', user => $admin) } ], [ 'digest' ], 'the root is for one identity');
my %friend = (client => 'friend', user => $secret);
my ($ticket) = @{ $zk->children('/zklock/jobs/nightly', %friend) };
is_deeply([ map { $_->[0] . ' ' . $_->[1] =~ s/:.*//r } map { @{ $zk->acl($_, %friend) } } '/zklock', '/zklock/jobs/nightly', "/zklock/jobs/nightly/$ticket" ],
	[ ('digest zklock') x 3 ], 'the locks are for one, too');
like($ticket, qr/^_c_/, 'a client with the same identity sees the queue');

# --- what other clients can do ---

sub answer_with
{
	my (@options) = @_;
	my ($out, $err);
	run([ 'openssl', 's_client', '-quiet', '-connect', "127.0.0.1:$zk_port", @options ],
		'<', \'srvr', '>', \$out, '2>', \$err, IPC::Run::timeout(30));
	return $out // '';
}
sh('openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=db1 -keyout stranger.key -out stranger.crt; cat stranger.key stranger.crt >stranger.pem');
like(answer_with('-cert', "$dir/db1.pem"), qr/Mode: standalone/, 'with a certificate ZooKeeper answers');
is(answer_with(), '', 'without one it does not');
is(answer_with('-cert', "$dir/stranger.pem"), '', 'nor with one of another authority');
{
	my $plain = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$zk_port", Timeout => 10);
	my $said = '';
	syswrite $plain, 'srvr';
	$plain->shutdown(1);
	1 while IO::Select->new($plain)->can_read(30) && sysread $plain, $said, 1000, length $said;
	unlike($said, qr/Mode/, 'nor without TLS');
}
unlike(zkcli("ls /zklock\n"), qr/\[jobs\]/, 'without a password, nothing can be read');
# With a certificate, but no password.
foreach my $call ([ 'children', '/zklock' ], [ 'children', '/' ], [ 'create', '/zklock/x' ], [ 'create', '/x' ],
	[ 'delete', "/zklock/jobs/nightly/$ticket" ], [ 'set', "/zklock/jobs/nightly/$ticket", '__REVOKE__' ])
{
	my ($op, @args) = @$call;
	ok(!eval { $zk->$op(@args, client => 'other', user => 'zklock:wrong'); 1 } && $@ =~ /NoAuth/, "with a wrong password: $op $args[0]");
}
is($batch->query(q{SELECT zk_lock_is_held('/jobs/nightly')}), 't', 'the lock is held all the time');
unlike(slurp_file($node->logfile), qr/\Q@{[ $secret =~ s{.*:}{}r ]}\E/, 'the log does not have the password');

# --- certificates that are wrong ---

my %wrong = (
	'of another authority' => 'cp stranger.crt db1.crt; cp stranger.key db1.key',
	'expired' => 'openssl x509 -req -in db1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 0 -out db1.crt; while openssl x509 -checkend 0 -in db1.crt; do sleep 0.1; done',
	'of which the server knows another authority' => 'cp stranger.crt ca.pem');
sh('mkdir good; cp db1.crt db1.key ca.pem good');
foreach my $what (sort keys %wrong)
{
	sh($wrong{$what});
	$node->reload;
	$node->wait_until(q{SELECT last_error LIKE 'TLS with server%' AND state NOT IN ('connected', 'idle') FROM zk_status});
	my $result = $batch->run(q{SELECT zk_lock_acquire('/jobs/other', '10 s')});
	is($result->{errcode}, '28000', "a certificate $what: no connection");
	like($result->{err}, qr/DETAIL:  The last error was: TLS with server .* failed: it(?:s certificate is not trusted| has sent the alert)/, 'and why');
	sh('cp good/* .; chmod 600 db1.key');
	$node->reload;
	$node->wait_until_connected;
}
$batch->run('SELECT zk_lock_release_all()');
is($batch->query(q{SELECT zk_lock_acquire('/jobs/nightly', '10 s')}), 't', 'with the right one again, locks can be acquired again');

$batch->quit;
$node->stop;
done_testing();
