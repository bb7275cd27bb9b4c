makeSortable(document.getElementById("sortable"));
document.documentElement.classList.remove("no-script");
