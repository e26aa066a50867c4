
# Answers get lost, and other clients delete directories: each at the worst moment.

use strict;
use warnings;

use Time::HiRes qw(usleep);

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', undef, %settings, 'zklock.hosts' => $proxy->address);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

# --- lost requests and replies -----------------------------------------------------------

foreach my $what ('requests', 'replies')
{
	my $path = "/lost $what";
	my $directory = "/zklock$path";
	$zk->create($directory);

	# Does the request come to ZooKeeper?  Wait for that, or until it is certainly held up.
	my $come = sub {
		my ($n) = @_;
		return $zk->wait_for_children($directory, $n) if $what eq 'replies';
		usleep(100_000);
		return;
	};

	$proxy->hold($what);
	$a1->send(acquire($path));
	$come->(1);
	ok(!$a1->is_done, "create, lost $what: waits");
	$proxy->cut;
	is($a1->answer, 't', "create, lost $what: has the lock");
	is(scalar(@{ $zk->children($directory) }), 1, "create, lost $what: by one znode");
	is($a1->query("SELECT zk_lock_is_held('$path')"), 't', "create, lost $what: for certain");

	# A backend that gives up meanwhile leaves nothing behind.
	$b1->query(acquire("$path/other"));
	$proxy->hold($what);
	$a2->send(acquire("$path/other", '300ms'));
	$zk->wait_for_children("$directory/other", 2) if $what eq 'replies';
	my $result = $a2->result;
	like($result->{errcode} || $result->{out}, qr/^(f|08006)$/, "create, lost $what: a wait ends");
	$proxy->cut;
	$node_a->wait_until_connected;
	is(scalar(@{ $zk->wait_for_children("$directory/other", 1) }), 1, "create, lost $what: and leaves nothing behind");
	$b1->query(release("$path/other"));
	$zk->wait_for_children("$directory/other", 0);
	$zk->delete("$directory/other");

	$b1->send(acquire($path));
	$zk->wait_for_children($directory, 2);
	$node_a->wait_until_contended($path);
	$proxy->hold($what);
	is($a1->query(release($path)), 't', "delete, lost $what: released");
	$come->(1);
	ok(!$b1->is_done, "delete, lost $what: which ZooKeeper does not know") if $what eq 'requests';
	$proxy->cut;
	is($b1->answer, 't', "delete, lost $what: the next has the lock");
	$node_a->wait_until_clean($path);
	$b1->query(release($path));
	$zk->wait_for_children($directory, 0);
}
is($node_a->status('tickets_lost'), '0', 'nothing was lost');

# A backend that reads meanwhile waits for the next connection, and is not told that ZooKeeper is
# away.
foreach my $what ('requests', 'replies')
{
	$proxy->hold($what);
	$a1->send('SELECT count(*) FROM zk_jobs');
	$node_a->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_type = 'client backend'});
	$proxy->cut;
	is($a1->answer, '0', "read, lost $what: answered after the reconnect");
}

# --- directories are deleted -------------------------------------------------------------

# Delete a directory with all its contents, up to the root, unless a client makes it anew meanwhile.
# The waiter's znode goes first; otherwise it would be the waiter's turn for a moment.
sub delete_all
{
	my ($path) = @_;
	my $number = sub { my ($n) = $_[0] =~ /-(\d{10})$/; return $n // -1; };
	my @all = sort { $number->($a) <=> $number->($b) } $path, @{ $zk->tree($path) };
	eval { $zk->delete($_) } foreach reverse @all;
	return;
}

foreach my $path ('/zklock/gone/deep', '/zklock/gone', '/zklock')
{
	$a1->query(acquire('/gone/deep'));
	$b1->send(acquire('/gone/deep'));
	$zk->wait_for_children('/zklock/gone/deep', 2);
	$node_a->wait_until_contended('/gone/deep');
	delete_all($path);
	$a1->wait_until(q{SELECT NOT zk_lock_is_held('/gone/deep')});
	is($a1->errcode(q{INSERT INTO t VALUES ('gone')}), 'ZK001', "$path deleted: the holder has lost the lock");
	is($b1->answer, 't', "$path deleted: the waiter gets it, in a new directory");
	is(scalar(@{ $zk->children('/zklock/gone/deep') }), 1, "$path deleted: by one znode");
	$a1->run(release('/gone/deep'));
	$b1->query(release('/gone/deep'));
	$zk->wait_for_children('/zklock/gone/deep', 0);
}

# Delete each directory as soon as it is empty, which is also the moment between its creation and
# its use.  (How often that happens depends on the machine.)
my $deleted = 0;
my @results;
while ($deleted <= 10 && @results < 400)
{
	$_->send(q{
		DO $$
		BEGIN
			FOR i IN 1 .. 25 LOOP
				BEGIN
					PERFORM zk_lock_acquire('/reaped/deep'), zk_lock_release('/reaped/deep');
				EXCEPTION
					WHEN lock_not_available THEN RAISE NOTICE 'reaped';
				END;
			END LOOP;
		END $$}) foreach $a1, $b1;
	until ($a1->is_done && $b1->is_done)
	{
		foreach my $path ('/zklock/reaped/deep', '/zklock/reaped')
		{
			$deleted++ if eval { $zk->delete($path); 1 };
		}
	}
	push @results, map { $_->result } $a1, $b1;
}
note "$deleted directories deleted";
cmp_ok($deleted, '>', 10, 'directories were deleted all the time');
is(join('', map { $_->{errcode} } @results), '', 'and locks can be had nevertheless');
$_->wait_until_clean('/reaped/deep') foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'nothing was written without a lock');

$_->quit foreach $a1, $a2, $b1;
$_->stop foreach $node_a, $node_b;
done_testing();
