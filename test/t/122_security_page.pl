
# The hardened set-up of doc/security.md, performed line by line: TLS through stunnel,
# authentication, access control lists and privileges.  Then the test tries everything that must
# fail.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use IPC::Run qw(run start);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

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
is(join(' ', sort keys %block), 'certificates credentials postgresql.conf sql stunnel zkcli zoo.cfg', 'the steps of the page');

# The two hosts of the page are one here, and the services have no directory in /etc.
my $zk = ZooKeeper->new(start => 0);
my $dir = $zk->{directory};
my $zk_port = $zk->setting(1, 'clientPort');
my $local_port = PostgreSQL::Test::Cluster::get_free_port();
sub here
{
	my ($text) = @_;
	return $text =~ s{/etc/(?:zookeeper|zklock)/}{$dir/}gr =~ s/zk1:2281/127.0.0.1:$zk_port/gr
	  =~ s/\b2281\b/$zk_port/gr =~ s/127\.0\.0\.1:2181/127.0.0.1:$local_port/gr;
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

sh($block{certificates});
sh('cp db1.pem client.pem');	# with which test/zookeeper asks whether the server serves

my $cfg = slurp_file("$dir/1/zoo.cfg") =~ s/^(?:clientPort|clientPortAddress|4lw\.commands\.whitelist)=.*\n//mgr;
write_file('1/zoo.cfg', $cfg . "secureClientPortAddress=127.0.0.1\n" . here($block{'zoo.cfg'}), 0600);
$zk->start;

my $tunnel;
sub start_tunnel
{
	unlink "$dir/stunnel.log";
	write_file('stunnel.conf', "foreground = yes\npid =\noutput = $dir/stunnel.log\n" . here($block{stunnel}), 0600);
	$tunnel = start([ 'stunnel4', "$dir/stunnel.conf" ], '>', '/dev/null', '2>', '/dev/null');
	$zk->wait_until(sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$local_port") }, 'stunnel');
	return;
}
sub stop_tunnel { $tunnel->kill_kill if $tunnel; undef $tunnel; return; }
END { my $status = $?; stop_tunnel(); $? = $status; }
start_tunnel();

# ZooKeeper's own shell.  Returns all that it says.
sub zkcli
{
	my ($commands) = @_;
	my $out;
	run([ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp',
			join(':', map { "/usr/share/java/$_.jar" } qw(slf4j-nop zookeeper-jute zookeeper)),
			'org.apache.zookeeper.ZooKeeperMain', '-waitforconnection', '-server', here('127.0.0.1:2181') ],
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

# The test itself looks at znodes as the administrator, through the tunnel.
$zk->{hosts} = "127.0.0.1:$local_port";
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
# A user of this host has the tunnel's certificate, but no password.
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
	'of another authority' => 'cp stranger.pem db1.pem',
	'expired' => 'openssl x509 -req -in db1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 0 -out db1.crt; cat db1.key db1.crt >db1.pem; while openssl x509 -checkend 0 -in db1.crt; do sleep 0.1; done',
	'of a server with another name' => 'true');
sh('cp db1.pem good.pem');
foreach my $what (sort keys %wrong)
{
	stop_tunnel();
	$node->wait_until_away;
	my $stunnel = $block{stunnel};
	sh($wrong{$what});
	local $block{stunnel} = $what =~ /name/ ? $stunnel =~ s/(checkHost = ).*/$1zk2/r : $stunnel;
	start_tunnel();
	my $result = $batch->run(q{SELECT zk_lock_acquire('/jobs/other', '10 s')});
	is($result->{errcode}, '08006', "a certificate $what: no connection");
	like($node->status('state'), qr/disconnected|in doubt|none/, 'zk_status says so');
	$zk->wait_until(sub { slurp_file("$dir/stunnel.log") =~ /alert|Rejected|No matching/ }, 'stunnel to say why');
	sh('cp good.pem db1.pem');
}
stop_tunnel();
start_tunnel();
$node->wait_until_connected;
$batch->run('SELECT zk_lock_release_all()');
is($batch->query(q{SELECT zk_lock_acquire('/jobs/nightly', '10 s')}), 't', 'with the right one again, locks can be acquired again');

$batch->quit;
$node->stop;
done_testing();
