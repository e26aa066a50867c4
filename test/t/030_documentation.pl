# The documentation is true: its examples run as they are printed, and everything that exists has an
# entry.
#
# Every block of a page that is marked as sql is executed, in a database made for the page,
# on server a; on server b if the first line of the block is
#
#	-- on another server
#
# and through a pooler in front of server a, where all clients of a mode share a connection, if
# it is
#
#	-- client 1 of PgBouncer in transaction mode
#
# Each section of a page begins with new sessions, so it holds no locks of earlier sections.  The module
# Examples says which comments are checked.  315_readme runs README.md.

use strict;
use warnings;

use feature 'state';
use FindBin;
use lib "$FindBin::Bin/../perl";

use Examples;
use PgBouncer;
use ZklockTest;

my $top = "$FindBin::Bin/../..";
my $zk = ZooKeeper->new;
my $node_a = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s');
my $node_b = ZklockNode->started('b', $zk, 'zklock.session_timeout' => '20s');

# --- running them ---

# One pooler for each database.
sub pooler
{
	my ($database) = @_;
	state %pooler;
	return $pooler{$database} //= PgBouncer->new($node_a,
		map { $_ => "dbname=$database pool_mode=$_ pool_size=1" } 'transaction', 'session');
}

sub run_page
{
	my ($page) = @_;
	my $database = lc($page =~ s{\W+}{_}gr);
	my $n = 0;

	$_->safe_psql('postgres', "CREATE DATABASE $database") foreach $node_a, $node_b;
	$node_b->safe_psql($database, 'CREATE EXTENSION zklock');
	foreach my $section (Examples::sections_of("$top/$page", $page))
	{
		my @blocks = grep { $_->{language} eq 'sql' } @{ $section->{blocks} };
		next unless @blocks;
		my ($first, $other) = map { $_->backend(dbname => $database) } $node_a, $node_b;
		my %session = ('here' => $first, 'on another server' => $other);
		foreach my $block (@blocks)
		{
			my ($mode) = $block->{where} =~ /PgBouncer in (\w+) mode/;
			next if $mode && !PgBouncer->program;
			my $session = $session{ $block->{where} } //= pooler($database)->backend($mode);
			foreach my $statement (@{ $block->{statements} })
			{
				Examples::run_statement($statement, $session, $first, $node_b,
					"$page:$statement->{line}, $section->{name}");
				$n++;
			}
		}
		$_->quit foreach values %session;
		$_->wait_until('SELECT count(*) = 0 FROM zk_locks WHERE claim IS NOT NULL') foreach $node_a, $node_b;
	}
	ok($n, "$page has examples");
	return;
}

run_page($_) foreach 'doc/zklock.md', 'doc/locking.md', 'doc/coming-from.md', 'doc/guarantees.md', 'doc/recipes.md', 'doc/installing.md',
  'doc/operations.md', 'doc/security.md';

# --- nothing is missing ---

# What is in the extension: name, signature, comment.
my @objects = map { [ split /\|/, $_, 3 ] } split /\n/, $node_a->safe_psql('postgres', q{
	SELECT p.proname,
		   CASE WHEN p.proretset THEN '' ELSE
		   p.proname || '(' || regexp_replace(replace(replace(pg_get_function_arguments(p.oid), ' DEFAULT ', ' = '), 'IN ', ''), '::inte(rval|ger)', '', 'g')
		   || ')' || CASE WHEN p.prokind = 'p' THEN '' ELSE ' → ' || pg_get_function_result(p.oid) END END,
		   coalesce(obj_description(p.oid, 'pg_proc'), '')
	FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	UNION ALL
	SELECT c.relname, '', coalesce(obj_description(c.oid, 'pg_class'), '')
	FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	ORDER BY 1, 2});
my $reference = slurp_file("$top/doc/zklock.md");
cmp_ok(scalar(@objects), '>', 20, 'the extension has functions');

foreach (@objects)
{
	my ($name, $signature, $comment) = @$_;
	isnt($comment, '', "$name: has a comment");
	my $shown = length $signature ? qr/^`?\Q$signature\E`?$/m : qr/^`\Q$name\E\(.*\) → setof record`$/m;
	my ($entry) = $reference =~ /^## \Q$name\E\n(.*?)(?=^## |\z)/ms;
	($entry) = grep { $_ =~ $shown } $reference =~ /^(## .*?)(?=^## |\z)/msg unless defined $entry;
	ok(defined $entry, "$name: has an entry in the reference, or is in that of another one") or next;
	like($entry, $shown, "$name: its signature") if length $signature;
	like($entry, qr/^```sql$/m, "$name: an example");
}

# Headings name no function that does not exist.
my %exists = map { $_->[0] => 1 } @objects;
is(join(' ', grep { !$exists{$_} } $reference =~ /^## (zk_\w+)$/mg), '', 'and for nothing else');

is($node_a->safe_psql('postgres', q{
	SELECT string_agg(a.attrelid::regclass || '.' || a.attname, ' ' ORDER BY a.attrelid, a.attnum)
	FROM pg_depend d JOIN pg_attribute a ON d.classid = 'pg_class'::regclass AND d.objid = a.attrelid
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		  AND (SELECT relkind IN ('r', 'v') FROM pg_class WHERE oid = a.attrelid) AND a.attnum > 0 AND NOT a.attisdropped
		  AND col_description(a.attrelid, a.attnum) IS NULL}),
	'', 'columns of views and tables that have no comment');

# Columns of views, and settings.
foreach my $view ('zk_locks', 'zk_jobs', 'zk_waits', 'zk_status', 'zk_sessions', 'zk_stat_locks', 'zk_stat')
{
	my ($entry) = $reference =~ /^## $view\n(.*?)(?=^## |\z)/ms;
	my @columns = split /\n/, $node_a->safe_psql('postgres',
		"SELECT attname FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0 ORDER BY attnum");
	is(join(' ', grep { $entry !~ /^\|.*`$_`.*\|.*\|$/m } @columns), '', "$view: all columns");
}
my @settings = split /\n/, $node_a->safe_psql('postgres', q{SELECT name FROM pg_settings WHERE name LIKE 'zklock.%'});
is(join(' ', grep { $reference !~ /^\|(?: `[\w.]+`,)* `\Q$_\E`(?:, `[\w.]+`)* \|/m } @settings), '', 'the reference: all settings');

# README.md has the few that most servers set.
my $readme = slurp_file("$top/README.md");
my %is_setting = map { $_ => 1 } @settings;
is(join(' ', grep { !$is_setting{$_} } $readme =~ /\b(zklock\.(?!so\b|md\b)[a-z_]+)/g), '', 'README.md: names settings that exist');

# ... with their defaults, and with when they can be changed.
my %change = (postmaster => 'restart', sighup => 'reload', superuser => 'superuser', user => 'any time');
my @defaults = map { [ split /\|/ ] } split /\n/, $node_a->safe_psql('postgres', q{
	SELECT name, CASE WHEN unit || boot_val ~ '^ms\d+000$' THEN boot_val::int / 1000 || ' s'
					  ELSE concat_ws(' ', boot_val, unit) END, context
	FROM pg_settings WHERE name LIKE 'zklock.%' AND boot_val <> ''});
foreach (@defaults)
{
	my ($name, $default, $context) = @$_;
	my ($told, $when) = $reference =~ /^\| `\Q$name\E` \| `?([^|`]*)`? \| ([^|,]*)/m;
	is($told, $default, "$name: default");
	is($when =~ s/\s+$//r, $change{$context}, "$name: when it can be changed");
	my ($short) = $readme =~ /^\| `\Q$name\E` \| `?([^|`]*)`? \|/m or next;
	is($short, $default, "$name: default, in README.md");
}

# ... and with the values that they take.
my %values = map { split /\|/ } split /\n/, $node_a->safe_psql('postgres', q{
	SELECT name || '|' || CASE vartype WHEN 'bool' THEN 'boolean' WHEN 'string' THEN 'text'
		WHEN 'enum' THEN '`' || array_to_string(enumvals, '`, `') || '`' ELSE shown(min_val, unit) || ' to ' || shown(max_val, unit) END
	FROM pg_settings, LATERAL (SELECT 1) AS one
	WHERE name LIKE 'zklock.%'} =~ s/shown\((\w+), unit\)/CASE WHEN unit IS NULL OR $1 = '0' THEN $1
		WHEN $1 ~ '^\\d+00000\$' AND $1::int % 3600000 = 0 THEN $1::int \/ 3600000 || ' h'
		WHEN $1 ~ '000\$' THEN $1::int \/ 1000 || ' s' ELSE $1 || ' ms' END/gr);
foreach my $name (sort keys %values)
{
	my ($told) = $reference =~ /^\| `\Q$name\E` \| [^|]* \| [^|]* \| ([^|]*) \|/m;
	is($told, $values{$name}, "$name: values");
}

# Volatility: the functions that the reference excepts are those that the catalogue has.
my ($stable) = $reference =~ /^All functions and views.*?All functions but (.*?) are\s+volatile/ms;
is(join(' ', sort $stable =~ /`(\w+)`/g),
	$node_a->safe_psql('postgres', q{SELECT string_agg(DISTINCT p.proname, ' ' ORDER BY p.proname) FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
			  AND NOT (p.provolatile = 'v' AND p.proparallel = 'u')}), 'the functions that are not volatile and parallel unsafe');

# SQLSTATEs: the table of errors has those that the code raises, and those that PostgreSQL raises
# in its functions.  The pages name no others.
my %sqlstate;
foreach my $header ($node_a->safe_psql('postgres',
		q{SELECT setting || '/utils/errcodes.h' FROM pg_config() WHERE name = 'INCLUDEDIR-SERVER'}),
	glob("$top/src/{,*/,*/*/}*.h"))
{
	my %define = slurp_file($header) =~ /^#define\s+(ERRCODE_\w+)\s+MAKE_SQLSTATE\((.*)\)/mg;
	$sqlstate{$_} = $define{$_} =~ s/[^0-9A-Z]//gr foreach keys %define;
}
my %raised = map { $_ => 1 } '25006', '40001',
  map { $sqlstate{$_} // $_ } map { slurp_file($_) =~ /\b(ERRCODE_\w+)/g } glob("$top/src/{,*/,*/*/}*.c");
my ($errors) = $reference =~ /^## Errors\n(.*?)(?=^## |\z)/ms;
my %listed = map { $_ => 1 } map { /\b(\w{5})\b/g } $errors =~ /^\| (\w{5}(?:, \w{5})*) \|/mg;
cmp_ok(scalar(keys %raised), '>', 15, 'the code raises errors');
is(join(' ', sort keys %listed), join(' ', sort keys %raised), 'errors: as the code raises them');
my %known = map { $_ => 1 } values %sqlstate;
foreach my $page (map { s{^\Q$top\E/}{}r } "$top/README.md", glob("$top/doc/*.md"))
{
	my %named = map { $_ => 1 } grep { $known{$_} || /^ZK/ } slurp_file("$top/$page") =~ /\b([0-9A-Z]{5})\b/g;
	is(join(' ', sort grep { !$listed{$_} } keys %named), '', "$page: SQLSTATEs");
}

# Privileges, but for the owner's: "function or relation: privilege to role".  A function that only
# the owner may execute has its line, too.
my %granted = map { $_ => 1 } split /\n/, $node_a->safe_psql('postgres', q{
	SELECT o.name || ': ' || coalesce(a.privilege_type, 'EXECUTE') || ' to ' ||
		   CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE coalesce(a.grantee::regrole::text, 'no other role') END
	FROM pg_depend d
		 JOIN (SELECT 'pg_proc'::regclass, oid, proname, coalesce(proacl, acldefault('f', proowner)), proowner FROM pg_proc
			   UNION ALL
			   SELECT 'pg_class'::regclass, oid, relname, coalesce(relacl, acldefault('r', relowner)), relowner FROM pg_class)
			  AS o (classid, objid, name, acl, owner) USING (classid, objid)
		 LEFT JOIN LATERAL aclexplode(o.acl) AS a ON a.grantee <> o.owner
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')});
my ($privileges) = slurp_file("$top/doc/security.md") =~ /^## Privileges\n(.*?)(?=^## |\z)/ms;
my %told;
foreach (map { [ /^\| (`.*`) \| (`.*`) \| `?(.*?)`? \|$/ ] } split /\n/, $privileges)
{
	my ($names, $what, $role) = @$_ or next;
	foreach my $name ($names =~ /`(.*?)`/g)
	{
		$told{"$name: $_ to $role"} = 1 foreach $what =~ /`(.*?)`/g;
	}
}
cmp_ok(scalar(keys %granted), '>', 20, 'there are privileges');
is(join("\n", sort keys %told), join("\n", sort keys %granted), 'privileges: as the catalogue has them');

# Each feature has a full cell in every column.
my ($features) = slurp_file("$top/doc/coming-from.md") =~ /^## Features\n(.*)\z/ms;
my (undef, undef, @features) = grep { /^\|/ } split /\n/, $features;
cmp_ok(scalar(@features), '>', 20, 'there are features');
is(join("\n", grep { (() = /\| [^|\s][^|]*(?= \|)/g) != 5 } @features), '', 'in five full cells each');

# Links within the repository lead somewhere, to a heading if they name one.
sub anchors_of
{
	my ($file) = @_;
	return map { lc(s/[^\w\s-]//gr) =~ s/ /-/gr => 1 } slurp_file($file) =~ /^#+ (.*)$/mg;
}

foreach my $page (map { s{^\Q$top\E/}{}r } glob("$top/*.md $top/doc/*.md $top/src/*.md $top/test/*.md $top/test/*/*.md"))
{
	my ($directory) = "$top/$page" =~ m{^(.*)/};
	my @dead;
	foreach my $link (slurp_file("$top/$page") =~ /\]\(([^)]+)\)/g)
	{
		next if $link =~ /^\w+:/;
		my ($file, $anchor) = split /#/, $link =~ s/\s+//gr;
		my $target = length $file ? "$directory/$file" : "$top/$page";
		next if -e $target && (!defined $anchor || { anchors_of($target) }->{$anchor});
		push @dead, $link;
	}
	is("@dead", '', "$page: links");
}

# A paragraph has no remains of an edit: outside of code, nothing is written with an arrow.
foreach my $page (map { s{^\Q$top\E/}{}r } glob("$top/*.md $top/doc/*.md $top/src/*.md $top/test/*.md $top/test/*/*.md"))
{
	my $prose = slurp_file("$top/$page") =~ s/^ *```.*?^ *```$//smgr =~ s/`[^`\n]+`//gr;
	is(join("\n", $prose =~ /^(.* => .*)$/mg), '', "$page: no => outside of code");
}

# Headings of the second level are in the list at the top of a page that has one.
foreach my $page (map { s{^\Q$top\E/}{}r } glob("$top/doc/*.md"))
{
	my ($head, @sections) = split /^(?=## )/m, slurp_file("$top/$page") =~ s/^ *```.*?^ *```$//smgr;
	my %listed = map { $_ => 1 } $head =~ /^- \[[^\]]*\]\(#([^)]+)\)/mg or next;
	is(join(' ', grep { !$listed{$_} } map { (/^## (.*)$/m)[0] =~ s/[^\w\s-]//gr =~ s/ /-/gr =~ tr/A-Z/a-z/r } @sections), '',
		"$page: its list of sections") if keys %listed > 2;
}

# Commands that the pages print exist.
my %target = map { $_ => 1 } 'install', 'installcheck', 'clean', slurp_file("$top/Makefile") =~ /^([\w-]+):(?!=)/mg;
foreach my $page (map { s{^\Q$top\E/}{}r } glob("$top/*.md $top/doc/*.md $top/src/*.md $top/test/*.md $top/test/*/*.md"))
{
	is(join(' ', grep { !$target{$_} } slurp_file("$top/$page") =~ /(?:`|&& |^(?=make [a-z-]+(?:$|  | [A-Z&])))make ([a-z-]+)/mg),
		'', "$page: make");
}

# So do the tests that the pages name: names without a directory are somewhere below test.
my %is_test = map { s{.*/}{}r => 1 } grep { -f } glob("$top/test/*/* $top/sql/*");
foreach my $page (map { s{^\Q$top\E/}{}r } glob("$top/*.md $top/doc/*.md $top/test/*.md"))
{
	my @tests = slurp_file("$top/$page") =~ m{`((?:[\w./-]+/)?(?:test_\w+\.c|\d{3}_\w+\.pl|\w+\.(?:trace|spec|pml)))`}g;
	is(join(' ', grep { m{/} ? !-e "$top/$_" && !-e "$top/test/$_" : !$is_test{$_} } @tests), '', "$page: the tests that it names exist");
	cmp_ok(scalar(@tests), '>', 20, "$page: names tests") if $page eq 'test/fault-tests.md';
}

# Each source file begins with its one job, in the line that the command in src/README.md shows.
is(join(' ', grep { slurp_file($_) !~ m{\A/\*-+\n \*\n \* @{[ m{([^/]+)$} ]}\n \*\t  \S} } glob("$top/src/{,*/,*/*/}*.c")), '',
	'src: each file says what it is for');

# test/README.md lists the files of each folder, and no others.  A name has no extension where
# a section is about one kind of file, and has its folder where it is about several.
sub files_in
{
	my ($pattern, $folder) = @_;
	my @names = map { s{^.*/}{}r } grep { -f } glob("$top/$pattern");
	die "there is no $pattern" unless @names;
	return map { defined $folder ? "$folder$_" : s/\.\w+$//r } grep { $_ ne 'README.md' } @names;
}

my %files = ('Tests' => [ files_in('test/*', '') ],
	'Unit tests' => [ files_in('test/unit/*.c'), files_in('test/unit/*.{h,trace}', '') ],
	'pg_regress tests' => [ files_in('sql/*.sql') ],
	'Isolation tests' => [ files_in('test/specs/*.spec') ],
	'TAP tests' => [ files_in('test/t/*.pl') ],
	'Modules of the TAP tests' => [ files_in('test/perl/*.pm') ],
	'Models, faults and the benchmark' =>
	  [ map { files_in("test/$_/*", "$_/") } 'model', 'interop', 'faults', 'fleet', 'bench' ]);
my $index = slurp_file("$top/test/README.md");
foreach my $section (sort keys %files)
{
	my ($entry) = $index =~ /^##? \Q$section\E\n(.*?)(?=^## |\z)/ms;
	my @named = grep { !m{/$} } map { /`([^`]+)`/g } ($entry // '') =~ /^\|([^|]*)\| \S/mg;
	is(join(' ', sort @named), join(' ', sort @{ $files{$section} }), "test/README.md, $section: all files");
}

$_->stop foreach $node_a, $node_b;
done_testing();
