
# Several tickets are created, or deleted, in one transaction of ZooKeeper's: one of them
# fails, the connection is lost, the worker ends, the session expires, or backends withdraw
# meanwhile.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use List::Util qw(min);

use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '20s',
	'zklock.connection_timeout' => '3min',
	'zklock.linger' => 0,
	'zklock.on_lost' => 'notice',	# the cases that lose locks go on to release them
	'restart_after_crash' => 'on');
my ($node, $other) = map { ZklockNode->started($_, $zk, %settings) } qw(a b);
my $judge = $other->backend;
my ($one, $two, $watcher);
my @paths = map { "/batch/$_" } 1 .. 5;

sub connect_all { ($one, $two, $watcher) = map { $node->backend } 1 .. 3; return; }
sub array { return q('{) . join(',', @_) . q(}'); }
sub acquire { return 'SELECT zk_multilock_acquire(' . array(@_) . ')'; }
sub release { return 'SELECT zk_multilock_release(' . array(@_) . ')'; }
sub znodes { my ($path) = @_; return grep { /\d{10}$/ } @{ $zk->children("/zklock$path") // [] }; }
sub stamp { return '/zklock/.zklock/batches/' . sprintf('%016s', $node->status('session_id') =~ s/^0x//r); }

# How many transactions have made the znodes of the locks that are held?
sub transactions { return $watcher->query('SELECT count(DISTINCT token / 65536) FROM zk_locks WHERE granted'); }

# The server's count since its start.
sub count_of { my ($column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM zk_stat"); }

sub is_clean
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
	is_deeply([ map { znodes($_) } @paths ], [], "$what: no znode is left");
	is($judge->query(acquire(@paths)), 't', "$what: another server gets the locks");
	is($judge->query(release(@paths)), 't', "$what: and lets go of them");
	return;
}

# Each held lock has just the znode that it should have.
sub is_held
{
	my ($what, @held) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %named = map { split /=/ } split /,/,
		$watcher->query(q{SELECT string_agg(path || '=' || znode || ';' || token / 65536, ',') FROM zk_locks WHERE granted});
	my %found = map { my ($znode) = my @all = znodes($_); $_ => @all == 1 ? "$znode;" . $zk->get("/zklock$_/$znode")->{czxid} : "@all" } @held;
	is_deeply(\%named, \%found, "$what: each lock has one znode, and its token is that znode's");
	return;
}

# The worker knows the directories, has a stamp, and trusts the role.
sub warm_up
{
	my $n = 0;
	$zk->wait_until(sub {
			$one->query(acquire(@paths));
			$n = transactions();
			$one->query(release(@paths));
			$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
			return $n == 1; }, 'one transaction for all');
	return;
}

# All that these backends request comes due in one turn of the worker.
sub together
{
	my ($what) = @_;
	my $worker = $node->worker_pid;
	kill 'STOP', $worker;
	$what->();
	kill 'CONT', $worker;
	return;
}

connect_all();

# --- one transaction ---

is($one->query(acquire(@paths)), 't', 'the first time');
is(transactions(), 5, 'the directories are new: five transactions');
$one->query(release(@paths));
is_clean('the first time');
warm_up();
my $batches = count_of('batches');
together(sub {
	$one->send(acquire(@paths));
	$node->wait_until('SELECT count(*) = 5 FROM zk_locks'); });
is($one->answer, 't', 'one transaction');
is(count_of('batches') - $batches, 1, 'one transaction: zk_stat counts it');
is(transactions(), 1, 'one transaction: one czxid');
is_held('one transaction', @paths);
$one->query(release(@paths));
is_clean('one transaction');

# --- many paths ---

# A batch waits until it has room for many creates, and the worker still knows most of the
# directories.  How many transactions it takes depends on when ZooKeeper's answers arrive, so
# the best of three counts.
my @many = map { "/batch/many/$_" } 1 .. 900;
my ($least, $fewest) = (900, 900);
foreach my $time (0 .. 3)
{
	my $creates = count_of('creates');
	is($one->query(acquire(@many)), 't', "many paths, $time");
	$creates = count_of('creates') - $creates;
	if ($time > 0)
	{
		$least = min($least, transactions());
		$fewest = min($fewest, $creates - @many);
	}
	$one->query(release(@many));
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
}
cmp_ok($least, '<=', 45, 'many paths: few transactions');
cmp_ok($fewest, '<=', 20, 'many paths: hardly any directory is created once more');

# --- a neighbour fails ---

# Curator's clients and the reaper delete directories.
$one->query(acquire(@paths));
$one->query(release(@paths));
$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
$zk->delete('/zklock/batch/3');
is($one->query(acquire(@paths)), 't', 'a directory is gone');
is(transactions(), 5, 'a directory is gone: all go alone');
is_held('a directory is gone', @paths);
$one->query(release(@paths));
is_clean('a directory is gone');
warm_up();

# The stamp is gone.
$zk->delete(stamp());
is($one->query(acquire(@paths)), 't', 'the stamp is gone');
is(transactions(), 5, 'the stamp is gone: all go alone');
$one->query(release(@paths));
is_clean('the stamp is gone');
warm_up();
$one->query(acquire(@paths));

# A znode is gone before it is deleted.
together(sub {
	$zk->delete("/zklock/batch/2/$_") foreach znodes('/batch/2');
	$one->send('SELECT zk_lock_release_all()');
	$zk->wait_until(sub { $one->is_done }, 'the release'); });
$one->result;
is_clean('a znode is gone');

# One backend cannot have its lock.
my $undone = count_of('batches_undone');
$zk->allow('/zklock/batch/5', 'rda');
together(sub {
	$one->send(acquire(@paths[ 0 .. 3 ]));
	$two->send("SELECT zk_lock_acquire('$paths[4]')");
	$node->wait_until('SELECT count(*) = 5 FROM zk_locks'); });
is($two->result->{errcode}, '28000', 'refused: one backend is told why');
is($one->answer, 't', 'refused: the others get their locks');
is(count_of('batches_undone') - $undone, 1, 'refused: zk_stat counts it');
is_held('refused', @paths[ 0 .. 3 ]);
$one->query(release(@paths[ 0 .. 3 ]));
$zk->allow('/zklock/batch/5', 'rcdwa');
is_clean('refused');
my $at = -s $node->logfile;
$one->query(acquire(@paths));
is(transactions(), 5, 'refused: for a while, the role has no transactions of several');
$one->query(release(@paths));
is_clean('refused before');

# --- the worker, at each step ---

foreach my $point ('batch-begun', 'batch-sent', 'batch-answered')
{
	foreach my $action (qw(fail lost expired withdrawn), 'withdrawn, fail')
	{
		my $what = "acquire, $point, $action";
		my $session = $node->status('session_id');
		my $stop = $action ne 'fail';
		warm_up();
		together(sub {
			$node->arm($point, $stop ? 'stop' : 'fail');
			$one->send(acquire(@paths[ 0, 1 ]));
			$two->send(acquire(@paths[ 2 .. 4 ]));
			$node->wait_until('SELECT count(*) = 5 FROM zk_locks'); });
		my $process = $node->at_point($point);
		if ($action eq 'lost')
		{
			$zk->kill9;
			$zk->start;
		}
		$zk->kill_session($session) if $action eq 'expired';
		if ($action =~ /withdrawn/)
		{
			$watcher->query('SELECT pg_cancel_backend(' . $two->pid . ')');
			is($two->result->{errcode}, '57014', "$what: one gives up");
		}
		# What was sent is done, and no answer is heard.
		$node->arm($point eq 'batch-begun' ? 'batch-sent' : $point eq 'batch-sent' ? 'batch-answered' : 'list-answered', 'fail') if $action =~ /, fail/;
		kill 'CONT', $process if $stop;
		is($one->answer, 't', "$what: gets its locks");
		is($two->answer, 't', "$what: the other one, too") if $action !~ /withdrawn/;
		$node->wait_until('SELECT count(*) = ' . ($action =~ /withdrawn/ ? 2 : 5) . ' FROM zk_locks') if $action ne 'expired';
		# What ZooKeeper has answered before the session ended may be granted, and is lost then.
		is_held($what, $action =~ /withdrawn/ ? @paths[ 0, 1 ] : @paths) unless $action eq 'expired' && $point ne 'batch-begun';
		unlink glob($node->data_dir . '/zklock.fault.*');
		$one->query('SELECT zk_lock_release_all()');
		$two->query('SELECT zk_lock_release_all()');
		is_clean($what);
	}

	foreach my $action (qw(fail lost expired))
	{
		my $what = "release, $point, $action";
		my $session = $node->status('session_id');
		my $stop = $action ne 'fail';
		$one->query(acquire(@paths));
		together(sub {
			$node->arm($point, $stop ? 'stop' : 'fail');
			$one->send(release(@paths));
			$zk->wait_until(sub { $one->is_done }, 'the release'); });
		$one->result;
		my $process = $node->at_point($point);
		if ($action eq 'lost')
		{
			$zk->kill9;
			$zk->start;
		}
		$zk->kill_session($session) if $action eq 'expired';
		kill 'CONT', $process if $stop;
		is_clean($what);
	}

	my $what = "acquire, $point, die";
	warm_up();
	together(sub {
		$node->arm($point, 'die');
		$one->send(acquire(@paths));
		$node->wait_until('SELECT count(*) = 5 FROM zk_locks'); });
	my $dead = $node->at_point($point);
	$_->kill_client foreach $one, $two, $watcher;
	$node->wait_until("SELECT worker_pid <> $dead AND safe FROM zk_status");
	connect_all();
	is_clean($what);
}

# --- a stamp that must not be written ---

warm_up();
$zk->allow(stamp(), 'rda');
$at = -s $node->logfile;
foreach my $time (1, 2)
{
	is($one->query(acquire(@paths)), 't', "a stamp that is refused, $time");
	is(transactions(), 5, "a stamp that is refused, $time: no transaction of several");
	is_held("a stamp that is refused, $time", @paths);
	$one->query(release(@paths));
	is_clean("a stamp that is refused, $time");
}
is(() = slurp_file($node->logfile, $at) =~ /creates and deletes the znodes of locks one by one/g, 1, 'a stamp that is refused: said once');

# --- large requests ---

# ZooKeeper refuses requests that are too large, and each create has the access control list.
$node->set('zklock.acl', join ', ', 'world:anyone:cdrwa', map { sprintf 'digest:%s%d:none:r', 'x' x 200, $_ } 10 .. 24);
$node->restart;
$node->wait_until_connected;
connect_all();
warm_up();
my @many = map { "/batch/many/$_" } 1 .. 60;
foreach my $time ('new directories', 'known directories')
{
	together(sub {
		$one->send(acquire(@many));
		$node->wait_until('SELECT count(*) = 60 FROM zk_locks'); });
	is($one->answer, 't', "large requests: $time");
	my $most = $watcher->query('SELECT max(n) FROM (SELECT count(*) AS n FROM zk_locks WHERE granted GROUP BY token / 65536) AS t');
	cmp_ok($most, '<=', 64 * 1024 / (15 * 200), "large requests: $time: small transactions");
	cmp_ok($most, '>', 1, "large requests: $time: but of several creates") if $time eq 'known directories';
	$one->query(release(@many));
	is_clean("large requests: $time");
}

done_testing();
